"""A run of a method that hardly acts says so, once, while it goes on."""

from holdfast.bench.plan import Run
from holdfast.bench.run import perform


def test_a_run_tells_of_a_method_that_hardly_acts(materials, tmp_path, capsys):
    given = {"stream": "continual(batch=2,limit=240,order=fog,clean=false)"}
    idle = Run.of("eta(redundancy=0)", **given)
    folder = perform(idle, materials, tmp_path)
    figures = folder.manifest.metrics
    assert (figures["steps_due"], figures["step_rate"] < 0.05) == (120, True)
    told = capsys.readouterr().err
    assert told.count("steps that it could have taken") == 1
    assert told.startswith("note: eta took")
    perform(Run.of("tent", **given), materials, tmp_path)
    assert "note" not in capsys.readouterr().err


def test_refused_steps_count_as_not_taken(materials, tmp_path):
    run = Run.of("tent(lr=1e30)", stream="continual(batch=16,limit=96,order=fog,clean=false)")
    figures = perform(run, materials, tmp_path).manifest.metrics
    assert figures["refused"] > 0
    assert figures["steps_due"] == 6 == figures["steps"] + figures["refused"]
