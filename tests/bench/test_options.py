"""Options of a run: each says what it decides, and all else follows from that."""

import json
import subprocess
import sys
from types import NoneType
from typing import get_args

import pytest

from holdfast.bench.compared import DECIDES_IMAGES, FACTS, NOT_COMPARED, NOT_IN_FINGERPRINT
from holdfast.bench.manifest import Manifest, describe
from holdfast.bench.options import OPTIONS
from holdfast.bench.plan import Run
from holdfast.bench.sweep import expand
from holdfast.cli.options import Setup, SweepSetup
from holdfast.paper.comparable import planned_differences
from holdfast.paper.experiments import find_experiment
from holdfast.results.stored import read_run

# What an option may be, beside its default, and what has to be said with it.
OTHER = {
    "severity": {"severity": 3},
    "mean": {"mean": "0.4", "std": "0.2"},
    "std": {"mean": "0.4", "std": "0.2"},
    "stream": {"stream": "correlated"},
    "domains": {"domains": "fog"},
    "intruders": {"intruders": "others", "stream": "noisy(kind=other)"},
    "preset": {"preset": "imagenet-c"},
    "precision": {"precision": "bfloat16"},
    "health": {"health": False},
    "guard": {"guard": "fallback"},
    "estimator": {"estimator": "atc"},
    "level": {"level": 0.01},
}
BY_KIND = {str: "other", int: 7, bool: True}


def another(flag):
    """Flags with another value of this one."""
    hint = OPTIONS[flag].hint
    kind = next(one for one in get_args(hint) or [hint] if one is not NoneType)
    return OTHER.get(flag) or {flag: BY_KIND[kind]}


def other_run(flag):
    return Run.of("eata", **another(flag))


@pytest.mark.parametrize("flag", OPTIONS)
def test_a_run_reads_back_from_its_flat_options(flag):
    run = other_run(flag)
    assert run.flat[flag] == another(flag)[flag] != OPTIONS[flag].default
    assert Run.of(**run.flat) == run != Run.of("eata")
    assert read_run(Manifest(classes=2, run=json.loads(json.dumps(run.flat)))) == run


@pytest.mark.parametrize("flag", OPTIONS)
def test_the_fingerprint_holds_all_that_decides_a_number(flag):
    """What is told by the model counts with its hash, which is none of these fields."""
    beside = {name: value for name, value in another(flag).items() if name != flag}
    if OPTIONS[flag].told_by == "model":
        beside = {}
    changes = other_run(flag).fingerprint({}) != Run.of("eata", **beside).fingerprint({})
    told_elsewhere = OPTIONS[flag].told_by == "model"
    assert changes is (OPTIONS[flag].decides != "nothing" and not told_elsewhere)


@pytest.mark.parametrize("flag", OPTIONS)
def test_all_that_decides_images_or_method_keeps_a_run_from_the_paper_s_numbers(flag):
    same = {"data": "cifar100-c", "model": "resnext29:w.pt", "preset": "cifar100-c"}
    experiment = find_experiment("table-cifar100")
    assert planned_differences(Run.of("eata", **same), experiment) == []
    found = planned_differences(Run.of("eata", **{**same, **another(flag)}), experiment)
    assert bool(found) is (OPTIONS[flag].decides in ("images", "method"))


@pytest.mark.parametrize("flag", sorted(OPTIONS.keys() - {"seed"}))
def test_a_sweep_takes_every_option(flag):
    (point,) = expand({"method": "eata", **another(flag)})
    assert point.run.flat[flag] == another(flag)[flag]


def test_what_is_derived_says_of_each_option_what_it_should():
    assert {"data", "model", "mean", "severity", "images", "head"} <= set(DECIDES_IMAGES)
    assert {"stream", "limit", "window", "seed", "root"}.isdisjoint(DECIDES_IMAGES)
    assert {"seed", "tags", "root", "workers", "batch", "stream"} <= NOT_COMPARED
    assert {"device", "window", "source", "preset"}.isdisjoint(NOT_COMPARED)
    assert set(NOT_IN_FINGERPRINT) >= {"root", "workers", "tags", "preset", "mean", "batch"}
    assert {"data", "model", "preset", "window", "threads"} <= set(FACTS)
    assert FACTS["list of images"] == "images"  # beside the number of images


def test_an_option_that_there_is_not_names_what_is_near():
    with pytest.raises(ValueError, match=r"no option 'severty'\. Did you mean 'severity'\?"):
        Run.of("bn", severty=3)


def test_what_is_given_counts_also_where_it_is_nought():
    given = Setup(seed=0, workers=0, analysis=False, limit=None).given
    assert given == {"seed": 0, "workers": 0}
    assert Setup(health=False).given == {"health": False}
    assert Setup(health=True, guard="none").given == {"guard": "none"}
    assert SweepSetup(stream=("single", "mixed")).given == {"stream": ("single", "mixed")}


def test_a_manifest_holds_the_flat_options_as_0_1_0_wrote_them(materials):
    run = Run.of("bn", batch=1, limit=4, domains="fog", tags=("sweep",))
    told = json.loads(json.dumps(describe(run, materials).run))
    written = {
        "method": "bn",
        "data": "glyphs-c",
        "model": None,
        "mean": None,
        "std": None,
        "stream": "continual",
        "source": None,
        "preset": None,
        "seed": 0,
        "batch": 1,
        "limit": 4,
        "domains": "fog",
        "severity": 5,
        "window": 64,
        "intruders": None,
        "images": None,
        "classes": None,
        "frost": None,
        "head": None,
        "device": "cpu",
        "threads": 1,
        "precision": None,
        "analysis": False,
        "root": None,
        "workers": 0,
        "tags": ["sweep"],
    }
    assert {name: told[name] for name in written} == written
    # An option of a later version is passed over.
    again = read_run(Manifest(classes=2, run={**told, "tomorrow": 3}))
    assert again.fingerprint({}) == run.fingerprint({})


@pytest.mark.parametrize("command", ["run", "paper", "sweep"])
def test_the_help_has_every_option_with_its_default(command):
    """And comes without waiting for torch."""
    code = (
        "import sys; from holdfast.cli.main import main\n"
        f"try: main(['{command}', '--help'])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.replace("│", " ").split())
    fixed = {
        "run": set(),
        "paper": {"stream", "domains", "window", "intruders", "analysis"},
        "sweep": {"analysis"},
    }
    for flag, one in OPTIONS.items():
        assert (f"--{flag} " in said or f"--{flag}, " in said) is (flag not in fixed[command])
        assert all(alias in said for alias in one.aliases)
    assert "Images in a batch. (default: the stream's 64)" in said


def test_a_window_of_0_is_none(materials):
    usual = Run.of("bn", stream="single")
    assert usual.effective_window == 64
    # What looks at each image by itself has no use for one.
    assert Run.of("memo", stream="single").effective_window is None
    none = Run.of("bn", stream="single", window=0)
    assert none.effective_window is None and none.fingerprint({}) != usual.fingerprint({})
    # Also to whoever reads the manifest: left out, it would be 64 again.
    told = json.loads(json.dumps(describe(none, materials).run))
    again = read_run(Manifest(classes=2, run=told))
    assert again.effective_window is None and again.fingerprint({}) == none.fingerprint({})
    # Where there would be none, nothing was said.
    assert Run.of("bn", window=0).fingerprint({}) == Run.of("bn").fingerprint({})
