"""Which methods hardly acted, as runs of this version and of older ones tell it."""

import pytest

from holdfast.results.acting import hardly_acts, idle_notes, steps_taken, with_steps

LEARNS = {"settings": {"eata": {"lr": {"value": 0.1}}, "debias": {"alpha": {"value": 0.9}}}}
NEVER = {"settings": {"bn": {}}}


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
    assert with_steps(figures, LEARNS) == figures
    assert not hardly_acts(with_steps(figures, LEARNS))


def test_of_an_older_run_batches_that_could_have_led_to_a_step_are_counted():
    """Of 150 batches 20 were missed and 2 refused; the rate was of those that were not missed."""
    older = {"batches": 150, "missed": 20, "refused": 2, "step_rate": 1 / 130}
    found = with_steps(older, LEARNS)
    assert (found["steps"], found["steps_due"]) == (1, 128)
    assert found["step_rate"] == pytest.approx(1 / 128)
    assert hardly_acts(found)


@pytest.mark.parametrize("figures", [{"batches": 500, "step_rate": 0.0}, {}])
def test_what_never_learns_had_no_step_to_take(figures):
    assert not hardly_acts(with_steps(figures, NEVER))
    assert with_steps(figures, NEVER).get("step_rate") is None


@pytest.mark.parametrize("manifest", [{}, {"settings": None}, {"settings": {"eata": 3}}])
def test_a_foreign_manifest_says_nothing(manifest):
    assert not hardly_acts(with_steps({"batches": 500, "step_rate": 0.0}, manifest))


def test_in_words():
    runs = [{"steps": 1, "steps_due": 128}, {"steps": 0, "steps_due": 1128}]
    assert steps_taken(runs) == "1 step of 1,256"
    assert steps_taken(runs[1:]) == "0 steps of 1,128"
    assert idle_notes({"eata": "", "bn": ""}) == []
    (note,) = idle_notes({"eata": "1 step of 128", "bn": ""})
    assert note.startswith("‡ hardly acted (eata: 1 step of 128): took fewer than 5 % of 100 or")
