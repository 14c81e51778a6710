"""Every registered method in every format, by what it has learnt on a stream."""

import re
from pathlib import Path

import pytest
from compositions import SMALL
from toys import stream

import holdfast
from holdfast.exporting import NotExportedError, export
from holdfast.exporting.formats import FORMATS

METHODS = {
    name: "+".join(SMALL.get(part, part) for part in method.example().split("+"))
    for name, method in holdfast.methods().items()
}
OTHERS = [to for to in FORMATS if to != "pt2"]

# With statistics="batch" these do what torch.export cannot follow: docs/exports.md says what.
NOT_BY_BATCH = {"cmf", "cotta", "lame", "memo", "prior", "roid", "steady", "t3a"}


@pytest.fixture(scope="module")
def adapters(net, source):
    """By method, after some batches."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = holdfast.adapt(net, METHODS[name], source=source, guard="none")
            for batch in stream()[:4]:
                made[name](batch)
        return made[name]

    return make


def place(folder, to):
    return folder / f"model{FORMATS[to].ending}"


@pytest.mark.parametrize("name", METHODS)
def test_torchs_own_files_predict_exactly_as_frozen_does(name, adapters, images, tmp_path):
    done = export(adapters(name).frozen(), tmp_path / "model.pt2", images=images, batch=16)
    assert done.largest == 0 and done.difference.labels == 0
    assert done.sizes == (1, 3, 16) and done.precisions == ("float32",)


@pytest.mark.slow
@pytest.mark.parametrize("to", OTHERS)
@pytest.mark.parametrize("name", METHODS)
def test_other_runtimes_predict_as_frozen_does(name, to, adapters, images, tmp_path, tools):
    tools(to)
    done = export(adapters(name).frozen(), place(tmp_path, to), images=images, batch=16)
    assert done.largest <= done.allowed and done.difference.labels == 0
    assert done.precisions == ("float32",)


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("name", METHODS)
def test_by_batch_it_is_exported_as_it_is_or_not_at_all(
    name, to, adapters, images, tmp_path, tools
):
    tools(to)
    module, path = adapters(name).frozen(statistics="batch"), place(tmp_path, to)
    if name in NOT_BY_BATCH:
        with pytest.raises(NotExportedError, match="without statistics='batch'"):
            export(module, path, images=images, batch=16)
        assert not list(tmp_path.iterdir())
    else:
        done = export(module, path, images=images, batch=16)
        assert done.largest <= done.allowed and done.precisions == ("float32",)


def test_the_table_of_the_docs_has_every_method_and_says_what_cannot_be_exported():
    """If not: python benchmarks/exports.py --docs docs/exports.md."""
    page = (Path(__file__).parents[2] / "docs" / "exports.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\|.*\|$", page.partition("<!-- table -->")[2], flags=re.M)
    ]
    head, _, *rows = rows
    assert head == ["method", *FORMATS, *(f"{to}, batch" for to in FORMATS)]
    by_spec = {row[0].strip("`"): row[1:] for row in rows}
    assert by_spec.keys() == {method.example() for method in holdfast.methods().values()}
    for name, method in holdfast.methods().items():
        stream, batch = by_spec[method.example()][:4], by_spec[method.example()][4:]
        assert stream[0] == "0" and all(float(cell) < 1e-3 for cell in stream)
        assert batch == ["no"] * 4 if name in NOT_BY_BATCH else float(max(batch)) < 1e-3
