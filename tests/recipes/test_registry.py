"""Methods of one's own: by the place of their class, and those that packages register."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from own_methods import HEAD, MINE, SURE
from toys import stream, toy_net

import holdfast
from holdfast import Debias
from holdfast.cli.main import main
from holdfast.explain.card import card
from holdfast.recipes import registry
from holdfast.recipes.compose import brief, compose, parse
from holdfast.recipes.registry import register

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize(
    "place", ["mine.py:Sure", "./mine.py:Sure", "mine:Sure", " mine.py : Sure "]
)
def test_a_method_is_found_by_its_place_and_knows_its_name(place):
    (found,) = parse(f"{place}(lr=0.5, gain=2)")
    assert (type(found).__name__, found.name, found.lr, found.gain) == ("Sure", "sure", 0.5, 2.0)
    assert isinstance(found, holdfast.Method)
    assert parse(str(found)) == (found,)
    assert "sure" not in holdfast.methods()


def test_it_goes_wherever_a_method_goes():
    whole = compose("mine.py:Sure(gain=2)+mine.py:Push+debias(alpha=0.9)")
    assert whole.names == "sure+gentle-push+debias"
    assert compose(str(whole)) == whole
    assert whole.plugins[1].alpha == 0.9 and whole.plugins[0].force == 0.1
    assert compose("eata+mine.py:Push").host.name == "eata"
    assert compose("mine.py:Sure", Debias()).names == "sure+debias"
    assert brief("mine.py:Sure( gain = 2 )+mine.py:Push + debias") == (
        "sure(gain=2)+gentle-push+debias"
    )
    assert card("mine.py:Sure+debias").name == "sure+debias"


def test_it_adapts_as_what_it_says():
    net, images = toy_net(), stream(["all"])[0]
    own_one = holdfast.adapt(net, f"{os.getcwd()}/mine.py:Sure(lr=0.1)")
    tent = holdfast.adapt(net, "tent(lr=0.1)")
    for adapter in (own_one, tent):
        adapter(images)
    assert own_one.last.stepped
    torch.testing.assert_close(own_one.predict(images), tent.predict(images))


def test_a_file_that_changed_is_read_again(own_folder):
    before = parse("mine.py:Sure")[0]
    assert type(parse("mine.py:Sure")[0]) is type(before)
    (own_folder / "mine.py").write_text((HEAD + SURE).replace("setting(1.0", "setting(3.0"))
    after = compose("mine.py:Sure").host
    assert after.gain == 3.0 and compose(before).host.gain == 1.0
    assert registry.code_hash(type(after)) != registry.code_hash(type(before))


def test_two_files_of_one_name_are_two_methods(own_folder):
    (own_folder / "other").mkdir()
    text = "from __future__ import annotations\n" + HEAD + SURE + "Gain = float\n"
    (own_folder / "other" / "mine.py").write_text(text.replace("gain: float", "gain: Gain"))
    one, other = parse("mine.py:Sure")[0], parse("other/mine.py:Sure")[0]
    assert one != other and str(one) != str(other)
    assert other.gain is None and type(other).settings()[-1].kind is float


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("nix.py:Sure", r"There is no file nix\.py"),
        ("no_such_module:Sure", "Cannot import no_such_module: ModuleNotFoundError"),
        ("mine.py:Sur", r"mine\.py has no 'Sur'\. Did you mean 'Sure'\? Methods in it: Sure, Push"),
        ("mine.py:number", r"mine\.py:number is no method: a method is a subclass of holdfast.Me"),
        ("mine.py:Sureness", "is no method"),
        ("mine.py:Learner", "is no method"),
        ("mine.py", r"mine\.py is a file: name the method in it as well, as in mine\.py:Class"),
        ("eata+mine.py", r"mine\.py is a file"),
        ("mine.py:", "Cannot read the method|is a file"),
        ("mine.py:Sure(gian=1)", r"sure has no setting 'gian'\. Did you mean 'gain'\?"),
        ("mine.py:Sure(gain=-1)", "sure: gain takes a number at least 0, not -1"),
        ("tent+mine.py:Sure", "sure is a host, not a plug-in"),
        ("mine.py:Sure+mine.py:Push+mine:Push", "gentle-push appears twice"),
        ("sure", r"There is no method 'sure'.*or your own, as file\.py:Class"),
    ],
)
def test_mistakes_say_what_to_do(method, message):
    with pytest.raises(ValueError, match=message):
        compose(method)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nx = 1 / 0\n", r"Cannot import bad\.py: ZeroDivisionError: division by zero \(line 2\)"),
        ("def f(:\n", r"Cannot import bad\.py: SyntaxError: .*line 1"),
        ("import sys\nsys.exit('done')\n", r"Cannot import bad\.py: SystemExit: done \(line 2\)"),
        (HEAD + "@register('tent')\nclass Bad(Learner): pass\n", "'tent' .* another, as in @regis"),
        (HEAD + "class Bad(Learner): name = 'eata'\n", r"'eata' of bad\.py:Bad is that of"),
        (
            HEAD + "@register('My Own')\nclass Bad(Learner): pass\n",
            r"of bad\.py:Bad is not of small",
        ),
        (
            HEAD + "class Bad(Learner):\n    a: float = setting(1.0, '')\n",
            r"^bad\.py:Bad .*@dataclass",
        ),
    ],
)
def test_a_file_that_will_not_do_is_told(own_folder, text, message):
    (own_folder / "bad.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        compose("bad.py:Bad")
    assert type(compose("tent").host).__module__ == "holdfast.recipes.tent"


def test_a_name_of_ours_cannot_be_taken_in_python_either():
    with pytest.raises(ValueError, match=r"'tent' of .*another, as in @register"):

        @register("tent")
        class Mine(holdfast.Method):
            pass


def test_a_class_of_ours_by_its_place_is_the_one_by_its_name():
    assert compose("holdfast.recipes.tent:Tent") == compose("tent")


def test_state_loads_where_the_method_is_loaded_and_runs_no_code(own_folder):
    net = toy_net()
    adapter = holdfast.adapt(net, "mine.py:Sure+debias(lambda_src=0)")
    batches = stream()
    adapter(batches[0])
    adapter.save("state.safetensors")
    again = holdfast.load("state.safetensors", net)
    assert torch.equal(again(batches[1]), adapter(batches[1]))
    # As in another process, to which that code is unknown.
    script = (
        "import sys, holdfast; from toys import toy_net\n"
        "try: holdfast.load('state.safetensors', toy_net())\n"
        "except ValueError as error: print(error)\n"
        "print('ran' if any(name.startswith('file_mine') for name in sys.modules) else 'did not')\n"
        "holdfast.compose('moved/mine.py:Sure')\n"
        "print(holdfast.load('state.safetensors', toy_net()).method.names)"
    )
    (own_folder / "moved").mkdir()
    (own_folder / "mine.py").rename(own_folder / "moved" / "mine.py")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env())
    assert done.returncode == 0, done.stderr
    refused, ran, loaded = done.stdout.splitlines()
    assert "mine.py:Sure is code of your own" in refused and "holdfast.compose(" in refused
    assert (ran, loaded) == ("did not", "sure+debias")


def test_state_that_does_not_fit_the_code_is_refused(own_folder):
    net = toy_net()
    holdfast.adapt(net, "mine.py:Sure(momentum=0.9)").save("state.safetensors")
    changed = (HEAD + SURE).replace("        return [Sureness", "        return [Counting")
    counting = """
class Counting(Term):
    def __init__(self, *given):
        super().__init__(*given)
        import torch
        self.register_buffer("count", torch.zeros(()))

    def forward(self, step):
        return TermResult(step.entropy.mean(), len(step.images))

"""
    (own_folder / "mine.py").write_text(
        changed.replace("class Sureness", counting + "class Sureness")
    )
    compose("mine.py:Sure")
    with pytest.raises(ValueError, match="does not hold the state of sure as it is here"):
        holdfast.load("state.safetensors", net)


def env(*folders):
    """Of a process that finds what this one does, and more."""
    here = str(Path(__file__).parents[1] / "helpers")
    paths = [*map(str, folders), here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_packages_register_methods_and_a_broken_one_is_a_warning(own_folder):
    site = own_folder / "site"
    site.mkdir()
    (site / "mine_in_a_package.py").write_text(MINE)
    packages = {
        "good": "surely = mine_in_a_package:Sure",
        "gone": "gone = no_such_module:Gone",
        "greedy": "tent = mine_in_a_package:Sure",
        "odd": "number = mine_in_a_package:number",
    }
    for name, entry in packages.items():
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[holdfast.methods]\n{entry}\n")
    script = (
        "import holdfast; from holdfast.cli.main import main\n"
        "main(['methods'])\n"
        "print(holdfast.compose('surely(gain=2)+debias'), holdfast.Sure.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env(site)
    )
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines()[1:-1]}
    assert "surely" in listed and not listed & {"gone", "number"}
    assert done.stdout.splitlines()[-1].startswith("surely(")
    for name, package in (("gone", "gone"), ("tent", "greedy"), ("number", "odd")):
        assert f"The method {name!r} of the package {package} is left out" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_takes_it_where_it_takes_a_method(capsys):
    assert main(["card", "mine.py:Sure+debias"]) == 0
    assert "weight of the entropy" in capsys.readouterr().out
    only = ["-m", "mine.py:Sure", "-m", "eata+mine.py:Push"]
    assert main(["doctor", "--model", "resnet20", *only]) == 0
    told = capsys.readouterr().out.partition("Methods, at")[2]
    assert [line.split()[1] for line in told.splitlines()[1:]] == ["sure", "eata+gentle-push"]
    assert main(["doctor", "--model", "resnet20", "-m", "mine.py:Nix"]) == 2
    assert "has no 'Nix'" in capsys.readouterr().err
