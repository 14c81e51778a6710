"""Sweeps: which runs a file or a command line names, and the table at the end."""

from itertools import product

import pytest
from short_runs import STREAM

from holdfast.bench.plan import Run
from holdfast.bench.sweep import CHOSEN, FACTORS, SWEPT, expand, read_sweep
from holdfast.cli.main import main
from holdfast.cli.options import SweepSetup
from holdfast.cli.run import METHODS
from holdfast.cli.sweep import Sweep, at_a_time
from holdfast.recipes.compose import compose
from holdfast.recipes.registry import methods

FILE = """
method = ["rotta", "eata+debias"]
stream = "correlated"
preset = ["none", "cifar100-c"]
batch = [16, 64]
limit = 32
seed = 4
seeds = 2

[grid]
"debias.alpha" = [0.9, 0.99]
eata.lr = [1e-4, 0.001]
"""


def runs(**given):
    return [point.run for point in expand(given)]


def fails(message, **given):
    with pytest.raises(ValueError, match=message):
        expand(given)


def test_lists_make_a_product(tmp_path):
    (tmp_path / "sweep.toml").write_text(FILE)
    points = expand(read_sweep(tmp_path / "sweep.toml"))
    specs = ["rotta"] + [
        f"eata(lr={lr})+debias(alpha={alpha})"
        for alpha, lr in product(("0.9", "0.99"), ("0.0001", "0.001"))
    ]
    expected = {
        Run.of(spec, stream="correlated", preset=p, batch=batch, limit=32, seed=seed, tags=(SWEPT,))
        for spec, p, batch, seed in product(specs, (None, "cifar100-c"), (16, 64), (4, 5))
    }
    found = [point.run for point in points]
    assert len(found) == len(expected) == 40
    assert set(found) == expected
    # Where each stands: the method as it was named, and what is swept but the seed.
    at = {point.run: dict(point.at) for point in points}
    spec = "eata(lr=0.001)+debias(alpha=0.9)"
    one = Run.of(spec, stream="correlated", batch=16, limit=32, seed=5, tags=(SWEPT,))
    swept = {"debias.alpha": "0.9", "eata.lr": "0.001", "preset": "None", "batch": "16"}
    assert at[one] == {"method": "eata+debias", **swept}


def test_a_method_without_the_setting_is_there_once():
    found = runs(method=["tent", "eata"], grid={"eata.lr": [1, 2, 3]})
    assert [run.method for run in found] == ["tent", "eata(lr=1.0)", "eata(lr=2.0)", "eata(lr=3.0)"]


def test_a_plug_in_leaves_the_learning_rate_to_its_host():
    found = runs(method=["debias", "tent+debias"], grid={"debias": {"lr": [0.1, 0.2]}})
    assert [run.method for run in found] == ["debias(lr=0.1)", "debias(lr=0.2)", "tent+debias"]


def test_what_is_written_out_stays():
    (found,) = runs(method="eata(lr=0.5)+debias(labels=soft)", grid={"debias.alpha": 0.5})
    assert compose(found.method) == compose("eata(lr=0.5)+debias(labels=soft,alpha=0.5)")


def test_the_same_run_is_there_once():
    # Also where it is written in two ways: 64 images are what a batch has by itself.
    assert len(runs(method=["tent", "tent", "tent(lr=0.0001)"], seed=[1, 1])) == 1
    assert len(runs(method="tent", grid={"tent.momentum": [0.9, 0.9, 0.8]})) == 2


def test_a_normalisation_is_one_value_and_not_three():
    (found,) = runs(method="bn", mean="0.1,0.2,0.3", std="0.5")
    assert found.normalization == ((0.1, 0.2, 0.3), (0.5,))
    assert len(runs(method="bn", mean=["0.1,0.2,0.3", "0.5"], std="0.5")) == 2
    fails("--mean was given without --std", method="bn", mean="0.5")


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("[0.1, 0.2, 0.3]", ["0.1,0.2,0.3"]),
        ("0.5", ["0.5"]),
        ("[[0.1, 0.2, 0.3], 0.5]", ["0.1,0.2,0.3", "0.5"]),
        ('["0.1,0.2,0.3", "0.5"]', ["0.1,0.2,0.3", "0.5"]),
    ],
)
def test_a_file_may_write_a_normalisation_as_numbers(tmp_path, written, means):
    (tmp_path / "sweep.toml").write_text(f"method = 'bn'\nmean = {written}\nstd = 0.5")
    found = expand(read_sweep(tmp_path / "sweep.toml"))
    assert [point.run.model.mean for point in found] == means


def test_orders():
    found = runs(method="bn", orders=3)
    assert [run.resolved_stream.order_seed for run in found] == [0, 1, 2]
    assert len({run.resolved_stream.domains() for run in found}) == 3
    for run in found:
        *corrupted, last = run.resolved_stream.domains()
        assert last == "original" and len(set(corrupted)) == 15
    both = expand(
        {"method": "bn", "order": ["paper", "snow, fog"], "orders": 1, "stream": "single"}
    )
    assert [point.at["order"] for point in both] == ["paper", "snow, fog", "random 0"]
    assert all(point.run.resolved_stream.name == "single" for point in both)
    assert both[1].run.resolved_stream.domains() == ("snow", "fog", "original")


def test_mistakes_name_what_is_near():
    fails("no key 'methods'.* Did you mean 'method'", methods="bn")
    fails("no key 'tags'", method="bn", tags=["mine"])
    fails("limit takes a whole number, not 'few'", method="bn", limit=[32, "few"])
    fails("analysis takes true or false, not 3", method="bn", analysis=3)
    fails("precision takes 'bfloat16' or 'float16', not 'double'", method="bn", precision="double")
    fails("severity takes a whole number, not none", method="bn", severity="none")
    fails("seeds takes a whole number at least 1, not 0", method="bn", seeds=0)
    fails("no method 'debiass'.* Did you mean 'debias'", method="bn", grid={"debiass.alpha": 1})
    fails("no setting 'alpah'.* Did you mean 'alpha'", method="debias", grid={"debias.alpah": 1})
    fails("alpha takes a number", method="debias", grid={"debias.alpha": ["much"]})
    fails(
        r"eata.lr fits no method of the sweep, tent, bn", method=["tent", "bn"], grid={"eata.lr": 1}
    )
    fails("debias.lr fits no method", method="eata+debias", grid={"debias.lr": 1})
    fails("no key 'bach'.* Did you mean 'batch'", method="bn", grid={"bach": [1, 2]})
    fails("has no run", method=[])
    fails("has no run", method="bn", batch=[])


def test_learning_rates_around_that_of_the_composition():
    points = expand({"method": ["rotta", "cotta+debias"], "preset": "cifar100-c", "lr": True})
    assert len(points) == 2 * len(FACTORS)
    for method, some in (("rotta", points[:5]), ("cotta+debias", points[5:])):
        own = compose(method, preset="cifar100-c")
        for factor, point in zip(FACTORS, some, strict=True):
            found = point.run.composition
            assert found.host.lr == pytest.approx(factor * own.host.lr, rel=1e-5)
            assert found.plugins == own.plugins
            assert point.run.tags == ((SWEPT,) if factor == 1 else (SWEPT, CHOSEN))
            assert float(point.at["lr"]) == found.host.lr
    assert {point.at["method"] for point in points} == {"rotta", "cotta+debias"}
    # The default is the run that `holdfast run` does.
    assert (
        points[2].run.fingerprint_fields()
        == Run.of("rotta", preset="cifar100-c").fingerprint_fields()
    )
    fails("bn takes no step", method="bn", lr=True)


def command(**options):
    setup = {name: options.pop(name) for name in list(options) if hasattr(SweepSetup(), name)}
    return Sweep(setup=SweepSetup(**setup), **options)


def test_the_command_line_says_the_same_as_a_file(tmp_path):
    (tmp_path / "sweep.toml").write_text(FILE)
    grid = ("debias.alpha=0.9,0.99", "eata.lr=1e-4", "eata.lr=0.001", "batch=16,64")
    own = {"method": ("rotta", "eata+debias"), "preset": ("none", "cifar100-c"), "jobs": 1}
    line = command(**own, stream=("correlated",), limit=32, seed=4, seeds=2, grid=grid)
    file = command(file=tmp_path / "sweep.toml", jobs=1)
    by_line, by_file = ([point.run for point in expand(one.given())] for one in (line, file))
    assert len(by_line) == 40 and set(by_line) == set(by_file)
    # What the command line gives replaces what the file says.
    less = command(file=tmp_path / "sweep.toml", limit=8, method=("tent+debias",), jobs=1)
    found = [point.run for point in expand({**less.given(), "grid": {}})]
    assert {(run.method, run.stream.limit, run.seed) for run in found} == {
        ("tent+debias", 8, 4),
        ("tent+debias", 8, 5),
    }


def test_what_is_given_replaces_the_file_also_where_it_is_the_usual(tmp_path, capsys):
    path = tmp_path / "sweep.toml"
    path.write_text(
        'method = ["tent", "eata"]\ndata = "cifar10-c"\nseed = 7\nseeds = 3\nseverity = 3\n'
        "workers = 2\norders = 2\nlr = true\n"
    )
    options = "--data glyphs-c --seed 0 --seeds 1 --severity 5 --workers 0 --orders 0 --no-lr"
    assert main(["sweep", str(path), *options.split(), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == ["2 runs", "tent seed 0", "eata seed 0"]
    said = {"data": "glyphs-c", "severity": 5, "workers": 0, "no_lr": True}
    for run in (point.run for point in expand(command(file=path, **said).given())):
        assert (run.data.name, run.data.severity, run.machine.workers) == ("glyphs-c", 5, 0)
    # What is not given is as the file says.
    assert len(expand(command(file=path).given())) == 2 * 5 * 3 * 2


def test_a_file_may_say_where_and_how_many_at_a_time(tmp_path, capsys):
    path, out = tmp_path / "sweep.toml", tmp_path / "there"
    path.write_text(
        f'method = "bn"\nstream = \'{STREAM}\'\nlimit = 8\nout = "{out}"\njobs = 1\nsnapshot = 9\n'
    )
    given = command(file=path).given()
    assert at_a_time(given) == 1 and given["snapshot"] == 9
    assert at_a_time(command(file=path, jobs=3).given()) == 3
    assert main(["sweep", str(path)]) == 0
    assert f"Runs: {out}" in capsys.readouterr().out
    assert len(list(out.glob("*/manifest.json"))) == 1
    with pytest.raises(ValueError, match="out is one for the whole sweep"):
        expand(command(file=path, grid=("out=a,b",)).given())
    path.write_text("jobs = 0\n")
    with pytest.raises(ValueError, match="jobs takes a whole number at least 1, not 0"):
        command(file=path).given()
    path.write_text("markdown = 'table.md'\n")
    with pytest.raises(ValueError, match=r"no key 'markdown'.* out, jobs, snapshot, grid"):
        expand(command(file=path).given())


def test_cores_are_shared(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)

    def shared(**options):
        sweep = command(device="cpu", **options)
        given = sweep.given()
        return at_a_time(given), given["threads"]

    assert shared() == (8, 1)
    assert shared(jobs=3) == (3, 2)
    assert shared(jobs=16) == (16, 1)
    assert shared(threads=4) == (8, 4)
    assert at_a_time(command(device="cuda").given()) == 1
    with pytest.raises(ValueError, match="at least 1, not 0"):
        shared(jobs=0)


def test_what_is_swept_by_itself():
    assert command().given()["method"] == METHODS
    learning = {name for name, one in methods().items() if one.learns}
    swept = {point.at["method"] for point in expand(command(lr=True).given())}
    assert swept == learning and {"eata", "debias", "cotta", "rotta"} <= swept
    assert command(lr=True, method=("tent",)).given()["method"] == ("tent",)
    for text in ("debias.alpha", "=1", "debias.alpha="):
        with pytest.raises(ValueError, match="written like"):
            command(grid=(text,)).given()


def test_a_dry_run_lists_and_does_nothing(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text("seeds = 2\n[grid]\ntent.lr = 0.5\n")
    out = tmp_path / "runs"
    options = ["--method", "tent", "-m", "bn", "--grid", "batch=8,16", "--out", str(out)]
    assert main(["sweep", str(tmp_path / "sweep.toml"), *options, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "8 runs",
        *(
            f"{method}, batch {batch} seed {seed}"
            for method in ("tent(lr=0.5)", "bn")
            for batch in (8, 16)
            for seed in (0, 1)
        ),
    ]
    assert not out.exists()
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "There is no file" in capsys.readouterr().err
    (tmp_path / "none.toml").write_text("seeds = ")
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "none.toml cannot be read as TOML" in capsys.readouterr().err


def test_a_sweep_goes_on_without_being_asked_to(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "--resume", "--dry-run"])
    assert ended.value.code == 2
    assert "--resume (applied to holdfast sweep)" in capsys.readouterr().err


def test_a_sweep_from_end_to_end(tmp_path, capsys):
    options = {"stream": (STREAM,), "limit": 16, "batch": 8, "jobs": 1, "threads": 1}
    options |= {"device": "cpu", "out": tmp_path, "health": False}
    command(method=("tent",), grid=("tent.lr=0.001,1",), **options).run()
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "2 runs" and lines[-1] == f"Runs: {tmp_path}"
    at = lines.index("Means ± standard deviation over seeds")
    assert lines[at + 1].split()[:3] == ["method", "tent.lr", "seeds"]
    assert [line.split()[:3] for line in lines[at + 2 : -1]] == [
        ["tent", "0.001", "1"],
        ["tent", "1.0", "1"],
    ]
    assert err.count("finished") == 2
    rows = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/rows.parquet")}
    assert len(rows) == 2
    # Again, with one more that fails: what is finished is taken as it is.
    with pytest.raises(SystemExit) as ended:
        command(
            method=("tent", "debias"), grid=("tent.lr=0.001,1",), source="nowhere", **options
        ).run()
    assert ended.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("method")) + 1
    assert [line.split()[0] for line in lines[at : at + 3]] == ["tent", "tent", "debias"]
    assert lines[at + 2].split() == ["debias", "0", "–", "–", "–"]
    (failed,) = (line for line in lines if line.startswith("Failed"))
    assert failed.startswith("Failed: debias seed 0: ") and "nowhere" in failed
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/rows.parquet")} == rows
