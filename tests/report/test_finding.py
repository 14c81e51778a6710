"""The sentence at the top says what the runs show, better or worse, and no more than that."""

import pytest
from compared import comparison_of, make_seeds
from made import make_run

from holdfast.bench.sweep import CHOSEN
from holdfast.report.finding import finding, headline, others, overall


def test_a_plug_in_that_helps(tmp_path):
    make_seeds(tmp_path, "eata", (50, 55))
    make_seeds(tmp_path, "eata+debias", (60, 63.75), time=0.1)
    said = finding(comparison_of(tmp_path))
    # The differences are 10 and 8.75, seed by seed.
    assert said.startswith("eata+debias is 9.4 ± 0.9 points more accurate than eata, ")
    assert "% slower" in said and "seed" not in said


def test_a_plug_in_that_harms_is_told_as_plainly(tmp_path):
    make_seeds(tmp_path, "eata", (60, 63.75), time=0.1)
    make_seeds(tmp_path, "eata+debias", (50, 55))
    said = finding(comparison_of(tmp_path))
    assert said.startswith("eata+debias is 9.4 ± 0.9 points less accurate than eata, ")
    assert "% faster" in said


def test_no_difference_is_claimed_that_is_smaller_than_that_between_seeds(tmp_path):
    make_seeds(tmp_path, "eata", (50, 60))
    make_seeds(tmp_path, "eata+debias", (60, 55))
    said = finding(comparison_of(tmp_path))
    assert said.startswith("eata+debias is as accurate as eata (they differ by 2.5 ± 10.6 points")
    assert "more accurate" not in said


def test_the_same_is_the_same(tmp_path):
    make_seeds(tmp_path, "eata", (50,))
    make_seeds(tmp_path, "eata+debias", (50,))
    said = finding(comparison_of(tmp_path))
    assert said.startswith("eata+debias is as accurate as eata, ")
    assert "equally well calibrated" in said
    assert "as fast" in said


def test_one_seed_is_told(tmp_path):
    make_seeds(tmp_path, "eata", (50,))
    make_seeds(tmp_path, "eata+debias", (55,))
    said = finding(comparison_of(tmp_path))
    assert "5.0 points more accurate" in said
    assert "one seed, so chance is not ruled out" in said


@pytest.mark.parametrize(("over", "word"), [(-0.2, "better"), (0.2, "worse")])
def test_calibration_is_told(tmp_path, over, word):
    """`over`: how much surer it is than the host, which is too sure by 0.3."""
    make_run(tmp_path, "eata", 50, rows={"over": 0.3})
    make_run(tmp_path, "eata+debias", 50, rows={"over": 0.3 + over})
    assert f"{word} calibrated" in finding(comparison_of(tmp_path))


def test_different_seeds_are_compared_by_both_spreads(tmp_path):
    for seed, accuracy in ((0, 50), (1, 60)):
        make_run(tmp_path, "eata", accuracy, seed=seed)
    for seed, accuracy in ((2, 58.75), (3, 61.25)):
        make_run(tmp_path, "eata+debias", accuracy, seed=seed)
    # Five points apart, but the spreads are 7.1 and 1.8.
    assert "as accurate as eata (they differ by 5.0 ± 7.3" in finding(comparison_of(tmp_path))


def test_other_machines_times_are_not_compared(tmp_path):
    make_run(tmp_path, "eata")
    make_run(tmp_path, "eata+debias", manifest={"machine": {"processor": "another"}})
    said = finding(comparison_of(tmp_path))
    assert "fast" not in said and "slow" not in said


@pytest.mark.parametrize("together", [True, False])
def test_times_of_runs_that_disturbed_each_other_are_not_compared(tmp_path, together):
    begun = "2026-01-01T00:05:00+00:00" if together else "2026-01-01T00:10:00+00:00"
    of_host = {"time_finished": "2026-01-01T00:10:00+00:00"}
    make_run(tmp_path, "eata", manifest=of_host)
    other = {"time_started": begun, "time_finished": "2026-01-01T00:20:00+00:00"}
    make_run(tmp_path, "eata+debias", manifest=other, rows={"time": 0.5})
    assert ("% slower" in finding(comparison_of(tmp_path))) != together


@pytest.mark.parametrize(("time", "told"), [(0.055, "about as fast"), (0.08, "% slower")])
def test_a_difference_of_times_is_more_than_batches_of_one_run_differ_by(tmp_path, time, told):
    """One domain takes a third longer: so much a machine may differ from run to run."""
    for method, each in (("eata", 0.05), ("eata+debias", time)):
        make_run(tmp_path, method, rows={"time": each, "slow": {"snow": 1.33}})
    assert told in finding(comparison_of(tmp_path))


@pytest.mark.parametrize("slow", [1, 3])
def test_times_that_other_programs_disturbed_are_not_compared(tmp_path, slow):
    """In one of the three domains batches take `slow` times as long."""
    make_run(tmp_path, "eata", rows={"time": 0.05})
    make_run(tmp_path, "eata+debias", rows={"time": 0.1, "slow": {"snow": slow}})
    assert ("% slower" in finding(comparison_of(tmp_path))) == (slow == 1)


def test_without_a_host_the_best_is_compared_with_the_next(tmp_path):
    make_seeds(tmp_path, "bn", (50, 50))
    make_seeds(tmp_path, "tent", (60, 60))
    make_seeds(tmp_path, "eata", (70, 70))
    assert finding(comparison_of(tmp_path)) == (
        "eata is the most accurate of 3 methods, at 70.0 ± 0.0 %: 10.0 ± 0.0 points above tent "
        "(the next) and 20.0 ± 0.0 above bn."
    )


def test_the_best_may_be_several(tmp_path):
    make_seeds(tmp_path, "bn", (10, 10))
    make_seeds(tmp_path, "tent", (50, 60))
    make_seeds(tmp_path, "eata", (60, 50))
    said = finding(comparison_of(tmp_path))
    assert said == (
        "eata and tent are equally accurate, at 55.0 %, the best of 3 methods, 45.0 ± 7.1 points "
        "above bn: they differ by no more than seeds do."
    )


def test_one_run_alone(tmp_path):
    make_seeds(tmp_path, "eata", (60,))
    said = finding(comparison_of(tmp_path))
    assert said.startswith("eata is 60.0 % accurate on average over 3 domains, with a calibration")
    assert said.endswith("(one seed).")


def test_of_two_that_go_on_the_better_is_named_first(tmp_path):
    """The mean of the first is higher, of easier images alone."""
    make_run(tmp_path, "tent", {"fog": 50, "snow": 90, "original": 90})
    make_run(tmp_path, "eata", {"fog": 60, "snow": 90, "original": 90}, cut=4)
    said = finding(comparison_of(tmp_path))
    assert said.startswith("So far, eata is 10.0 points more accurate than tent")


def test_while_runs_go_on_only_what_both_have_seen_is_compared(tmp_path):
    """The host is through all three domains, the other through the first and half the second."""
    make_run(tmp_path, "eata", {"fog": 50, "snow": 10, "original": 90})
    make_run(tmp_path, "eata+debias", {"fog": 60, "snow": 90, "original": 90}, cut=6)
    said = finding(comparison_of(tmp_path))
    assert said.startswith("So far, eata+debias is 10.0 points more accurate than eata")


def test_while_runs_go_on_the_best_may_be_several(tmp_path):
    make_run(tmp_path, "bn", {"fog": 50, "snow": 10, "original": 90})
    make_run(tmp_path, "tent", {"fog": 50, "snow": 90, "original": 90}, cut=6)
    assert finding(comparison_of(tmp_path)) == (
        "So far, tent and bn are equally accurate: one seed tells no more."
    )


def test_nothing_yet(tmp_path):
    make_run(tmp_path, cut=0)
    assert finding(comparison_of(tmp_path)) == "No batch of these runs has been written down yet."


def test_of_many_settings_none_is_picked_by_its_result(tmp_path):
    make_seeds(tmp_path, "eata", (50, 50))
    make_seeds(tmp_path, "eata+debias(alpha=0.9)", (60, 60))
    make_seeds(tmp_path, "eata+debias(alpha=0.96)", (45, 45))
    make_seeds(tmp_path, "eata+debias(alpha=0.99)", (45, 55))
    best, said = headline(comparison_of(tmp_path))
    assert best.startswith("eata+debias(alpha=0.9) (picked by this result from 3 settings) is the")
    assert said == (
        "eata+debias differs from eata by −5.00 to +10.00 points of accuracy over 3 settings: "
        "better in 1 and worse in 1 of them, by more than seeds differ."
    )


def test_the_plug_in_as_it_is_comes_before_its_settings(tmp_path):
    make_seeds(tmp_path, "eata", (50, 50))
    make_seeds(tmp_path, "eata+debias(alpha=0.9)", (70, 70))
    make_seeds(tmp_path, "eata+debias", (55, 55))
    one = comparison_of(tmp_path)
    assert headline(one)[1].startswith("eata+debias is 5.0 ± 0.0 points more accurate than eata")
    (other,) = others(one)
    assert other.startswith("eata+debias(alpha=0.9) is 20.0 ± 0.0 points more accurate than eata")


def test_every_other_plug_in_has_its_sentence(tmp_path):
    make_seeds(tmp_path, "eata", (60, 60))
    make_seeds(tmp_path, "eata+debias", (65, 65))
    make_seeds(tmp_path, "tent", (50, 50))
    make_seeds(tmp_path, "tent+debias", (40, 40))
    one = comparison_of(tmp_path)
    assert headline(one)[1].startswith("eata+debias is 5.0 ± 0.0 points more accurate than eata")
    (other,) = others(one)
    assert other.startswith("tent+debias is 10.0 ± 0.0 points less accurate than tent")


# A learning rate that was chosen with labels is told wherever it is named or counted.


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"eata+debias"}, ", its learning rate chosen with labels"),
        ({"eata"}, ", the latter's learning rate chosen with labels"),
        ({"eata", "eata+debias"}, ", both learning rates chosen with labels"),
    ],
)
def test_of_two_it_is_told_whose_rate_was_chosen_with_labels(tmp_path, chosen, said):
    for method, accuracy in (("eata", 50), ("eata+debias", 60)):
        make_seeds(tmp_path, method, (accuracy,) * 2, tags=(CHOSEN,) if method in chosen else ())
    assert finding(comparison_of(tmp_path)).endswith(f"{said}.")


def test_of_the_best_and_of_settings_it_is_told_how_many_rates_were_chosen_with_labels(tmp_path):
    make_seeds(tmp_path / "best", "bn", (50, 60))
    make_seeds(tmp_path / "best", "tent(lr=0.1)", (60, 50), tags=(CHOSEN,))
    assert finding(comparison_of(tmp_path / "best")).startswith(
        "bn and tent(lr=0.1) (1 of them with a learning rate chosen with labels) are equally"
    )
    make_seeds(tmp_path / "settings", "eata", (50, 50))
    for rate in (0.1, 0.2):
        make_seeds(tmp_path / "settings", f"eata(lr={rate})+debias", (60, 60), tags=(CHOSEN,))
    assert "over 2 settings (all with a learning rate chosen with labels): better in 2" in finding(
        comparison_of(tmp_path / "settings")
    )


def test_of_one_alone_it_is_told_too(tmp_path):
    make_seeds(tmp_path, "tent(lr=0.1)", (60,), tags=(CHOSEN,))
    assert finding(comparison_of(tmp_path)).endswith(
        "its learning rate chosen with labels (one seed)."
    )


@pytest.mark.parametrize(
    ("seeds", "orders", "words"),
    [(2, 1, "seeds"), (1, 2, "orders"), (2, 2, "seeds and orders")],
)
def test_what_differences_are_held_against_is_told(tmp_path, seeds, orders, words):
    for seed in range(seeds):
        for order in range(orders):
            given = {"seed": seed, "stream": f"continual(order=random,order_seed={order})"}
            make_run(tmp_path, "tent", 50 + 10 * (seed + order), **given)
            make_run(tmp_path, "eata", 65 - 10 * (seed + order), **given)
    assert finding(comparison_of(tmp_path)).endswith(f"they differ by no more than {words} do.")


# The best method overall.


def test_the_best_may_be_a_plug_in_alone(tmp_path):
    """It is named first, with what it gains over the models that do not learn."""
    for method, accuracies in {
        "frozen": (30, 32.5),
        "bn": (50, 51.25),
        "eata": (55, 56.25),
        "eata+debias": (60, 61.25),
        "debias": (65, 66.25),
    }.items():
        make_seeds(tmp_path, method, accuracies)
    best, plugin = headline(comparison_of(tmp_path))
    assert best == (
        "debias is the most accurate of 5 methods, at 65.6 ± 0.9 %: 5.0 ± 0.0 points above "
        "eata+debias (the next), 15.0 ± 0.0 above bn and 34.4 ± 0.9 above frozen."
    )
    assert plugin.startswith("eata+debias is 5.0 ± 0.0 points more accurate than eata, ")


def test_that_not_adapting_is_best_is_told(tmp_path):
    for method, accuracy in {"frozen": 60, "bn": 50, "tent": 40}.items():
        make_seeds(tmp_path, method, (accuracy,))
    assert finding(comparison_of(tmp_path)).startswith(
        "frozen (which does not adapt) is the most accurate of 3 methods, at 60.0 %: 10.0 points "
        "above bn."
    )


def test_one_seed_is_told_once(tmp_path):
    for method, accuracy in {"frozen": 40, "eata": 50, "eata+debias": 60}.items():
        make_seeds(tmp_path, method, (accuracy,))
    said = finding(comparison_of(tmp_path))
    assert said.count("one seed") == 1
    assert said.endswith("All of it with one seed, so chance is not ruled out.")


def test_while_runs_go_on_the_best_is_that_of_what_has_been_seen(tmp_path):
    make_run(tmp_path, "bn", {"fog": 40, "snow": 90, "original": 90})
    make_run(tmp_path, "tent", {"fog": 50, "snow": 90, "original": 90})
    make_run(tmp_path, "eata", {"fog": 60, "snow": 90, "original": 90}, cut=4)
    assert finding(comparison_of(tmp_path)).startswith(
        "So far, eata is the most accurate of 3 methods: 10.0 points above tent (the next) and "
        "20.0 above bn"
    )


# Methods that hardly acted.


def test_nothing_is_compared_with_a_host_that_hardly_acted(tmp_path):
    make_run(tmp_path, "frozen", 40, batches=40)
    make_run(tmp_path, "eata", 50, batches=40, rows={"every": 120})
    make_run(tmp_path, "eata+debias", 60, batches=40)
    one = comparison_of(tmp_path)
    assert "than eata" not in " ".join([*headline(one), *others(one)])
    best, idle = headline(one)
    assert best.startswith("eata+debias is 20.0 points more accurate than frozen")
    assert idle == "eata (1 step of 120) hardly acted: nothing is compared with it."


def test_a_method_that_hardly_acted_is_not_the_best(tmp_path):
    for method, accuracy in {"frozen": 40, "bn": 50, "tent": 55}.items():
        make_run(tmp_path, method, accuracy, batches=40)
    make_run(tmp_path, "eata", 60, batches=40, rows={"every": 60})
    said = finding(comparison_of(tmp_path))
    assert said.startswith("tent is the most accurate of 3 methods, at 55.0 %: 5.0 points above bn")
    assert "eata (2 steps of 120) hardly acted" in said


def test_one_that_hardly_acted_in_one_run_of_two_is_not_compared(tmp_path):
    for seed in range(2):
        make_run(tmp_path, "bn", 50, seed=seed, batches=40)
        rows = {"every": 60 if seed else 1}
        make_run(tmp_path, "eata", 60, seed=seed, batches=40, rows=rows)
    said = finding(comparison_of(tmp_path))
    assert "eata (2 steps of 120) hardly acted" in said and "accurate than" not in said


# Several comparisons.


def test_the_best_of_each_of_several_is_named_once(tmp_path):
    best = {"one": ("eata", 60), "two": ("tent", 60), "three": ("eata", 60), "four": ("eata", 50)}
    found = {}
    for name, (method, accuracy) in best.items():
        for other in ("bn", "tent", "eata"):
            make_run(tmp_path / name, other, accuracy if other == method else 50)
        found[name] = comparison_of(tmp_path / name)
    make_run(tmp_path / "five", "sar", cut=0)
    make_run(tmp_path / "six", "eata", cut=4)
    for name in ("five", "six"):
        found[name] = comparison_of(tmp_path / name)
    assert overall(found) == (
        "eata is the most accurate on one, three and six (so far, no other method); tent on two; "
        "bn, eata and tent (level) on four; nothing can be said yet on five."
    )
