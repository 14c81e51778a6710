"""Every block of code on every page runs, or says why not; pages that are made of cards too."""

import sys
import warnings
from pathlib import Path

import code_blocks
import pytest
import torch
from code_blocks import ROOT, blocks, check_options, commands, fill, run
from site_pages import method_page

from holdfast.bench import materials
from holdfast.recipes import registry

# What the site makes lies beside the pages, and is asked for by name below.
MADE = {"methods", "streams", "parts.md"}
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.relative_to(ROOT / "docs" if "docs" in path.parts else ROOT).parts[0] not in MADE
}


def with_code(page: str) -> bool:
    return bool(blocks(PAGES[page].read_text("utf-8")))


def is_slow(page: str) -> bool:
    return any(block.when == "slow" for block in blocks(PAGES[page].read_text("utf-8")))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A current folder of the reader's, whose methods are not there for other tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(registry, "_registry", registry.methods())
    monkeypatch.setattr(materials, "DRAWN_IMAGES", 640)  # of the embedded set's source
    yield fill(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


def run_page(text: str, names: dict, *, slow: bool) -> list[code_blocks.Block]:
    """Its blocks in order, which share their names and their folder."""
    ran = []
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # What a page shows may warn: streams here are short, and networks untrained.
        warnings.simplefilter("ignore")
        for block in blocks(text):
            if block.when != "slow" or slow:
                run(block, names)
                ran.append(block)
    return ran


@pytest.mark.parametrize("page", list(filter(with_code, PAGES)))
def test_a_pages_code_runs(page, scratch):
    run_page(PAGES[page].read_text("utf-8"), scratch, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a rehearsal is given ten minutes
@pytest.mark.parametrize("page", list(filter(is_slow, PAGES)))
def test_a_pages_slow_code_runs_too(page, scratch):
    run_page(PAGES[page].read_text("utf-8"), scratch, slow=True)


def takes_long(name: str) -> bool:
    """It warms up, whatever the network."""
    return "warm-up" in registry.methods()[name]().resolved().needs()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if takes_long(name) else name
        for name in sorted(registry.methods())
    ],
)
def test_the_code_on_a_methods_page_runs(name, scratch):
    (ran,) = run_page(method_page(name), scratch, slow=True)
    assert f'{name}"' in ran.code
    assert torch.isfinite(scratch["logits"]).all()


def test_there_are_pages_and_blocks_that_run():
    found = [block for path in PAGES.values() for block in blocks(path.read_text("utf-8"))]
    assert len(PAGES) > 25 and "README.md" in PAGES and "docs/start.md" in PAGES
    assert sum(block.when == "always" for block in found) > 30
    assert all(block.why for block in found if block.when != "always")


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_from_the_tests(page):
    """Indented, a block says neither what it is nor why it is not run. Pages of results end with
    the commands that made them, over hours, on real images."""
    if "results/" not in page:
        indented = [
            line
            for line in PAGES[page].read_text("utf-8").splitlines()
            if line.startswith(("    holdfast ", "    python ", "    import ", "    from "))
        ]
        outside = set(indented) - {
            line
            for block in blocks(PAGES[page].read_text("utf-8"))
            for line in block.code.split("\n")
        }
        assert not outside


PAGE = """
<!-- not run: needs a GPU -->
```sh
holdfast confirm --device cuda   # a comment
holdfast run \\
  -m 'tent(lr=0.1)'
```

```python
x = 1
```

```text
shown
```
<!-- slow: takes a minute -->
```python
x += 1
```
"""


def test_blocks_are_found_and_marked():
    gpu, first, second = blocks(PAGE)
    assert (gpu.language, gpu.when, gpu.why) == ("sh", "never", "needs a GPU")
    assert commands(gpu)[0] == ["holdfast", "confirm", "--device", "cuda"]
    assert commands(gpu)[1] == ["holdfast", "run", "-m", "tent(lr=0.1)"]
    assert (first.when, second.when, second.why) == ("always", "slow", "takes a minute")
    assert PAGE.split("\n")[second.line - 1] == "```python"
    names: dict = {}
    assert len(run_page(PAGE, names, slow=False)) == 2 and names["x"] == 1
    run_page(PAGE, names, slow=True)
    assert names["x"] == 2


@pytest.mark.parametrize(
    "bad", ["holdfast run --no-such-option 1", "holdfast paper", "holdfast sweap --lr"]
)
def test_a_command_that_is_not_run_is_read(bad, capsys):
    with pytest.raises(SystemExit):
        check_options(bad.split())


def test_mistakes_on_a_page_are_found(scratch, capsys):
    for text in (
        "```python\n1 / 0\n```\n",
        "```sh\nholdfast card tennt\n```\n",
        "```sh\ncurl localhost\n```\n",
        "<!-- not run: later -->\n```python\n1 +\n```\n",
        "```toml\na = \n```\n",
        "```\nholdfast run\n```\n",
    ):
        with pytest.raises((Exception, SystemExit)):
            run_page(text, scratch, slow=True)
    assert Path("photos").is_dir()
