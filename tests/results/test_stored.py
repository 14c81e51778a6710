"""Which methods hardly acted, as runs of this version and of older ones tell it."""

import pytest

from holdfast.bench.manifest import Manifest, SettingValue
from holdfast.results.stored import hardly_acts, read_run, steps_taken, with_steps

LEARNS = {"eata": {"lr": SettingValue(0.1)}, "debias": {"alpha": SettingValue(0.9)}}
NEVER = {"bn": {}}


def told(metrics, settings):
    return with_steps(Manifest(classes=10, settings=settings, metrics=metrics))


@pytest.mark.parametrize(
    ("steps", "due", "hardly"),
    [
        (1, 128, True),
        (0, 100, True),
        (4, 100, True),
        (5, 100, False),
        (49, 1000, True),
        (50, 1000, False),
        # So few say nothing.
        (0, 99, False),
        (0, 0, False),
    ],
)
def test_less_than_a_twentieth_of_a_hundred_steps_or_more(steps, due, hardly):
    rate = steps / due if due else None
    assert hardly_acts({"steps": steps, "steps_due": due, "step_rate": rate}) == hardly


def test_what_is_written_down_is_taken_as_it_is():
    """A method that learns from a memory could not have taken a step in every batch."""
    figures = {"batches": 640, "steps": 10, "steps_due": 10, "step_rate": 1.0}
    assert told(figures, LEARNS) == figures
    assert not hardly_acts(told(figures, LEARNS))


def test_of_an_older_run_batches_that_could_have_led_to_a_step_are_counted():
    """Of 150 batches 20 were missed and 2 refused; the rate was of those that were not missed."""
    older = {"batches": 150, "missed": 20, "refused": 2, "step_rate": 1 / 130}
    found = told(older, LEARNS)
    assert (found["steps"], found["steps_due"]) == (1, 128)
    assert found["step_rate"] == pytest.approx(1 / 128)
    assert hardly_acts(found)


@pytest.mark.parametrize("figures", [{"batches": 500, "step_rate": 0.0}, {}])
def test_what_never_learns_had_no_step_to_take(figures):
    assert not hardly_acts(told(figures, NEVER))
    assert told(figures, NEVER).get("step_rate") is None


def test_in_words():
    runs = [{"steps": 1, "steps_due": 128}, {"steps": 0, "steps_due": 1128}]
    assert steps_taken(runs) == "1 step of 1,256"
    assert steps_taken(runs[1:]) == "0 steps of 1,128"


@pytest.mark.parametrize("options", [{"limit": "many"}, {"preset": {}}, {"method": 5}])
def test_options_of_other_types_are_no_run(options):
    manifest = Manifest(classes=3, run={"method": "bn", **options})
    with pytest.raises(ValueError, match=r"run it again|limit takes"):
        read_run(manifest)
