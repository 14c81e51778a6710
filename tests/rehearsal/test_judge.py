"""How methods are compared, and what is said of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from holdfast.rehearsal.judge import (
    Difference,
    Evaluation,
    choose,
    compare,
    ranked,
    score,
    survivors,
    why_dropped,
    why_not,
)

SIZES = (64, 64, 64, 30)
STREAMS = ("clean", "continual")
COSTS = {"frozen": 1, "bn": 1, "tent": 3, "eata": 3, "sar": 6}


def showing(*rights, **options):
    """Rights of each batch by stream."""
    return {
        name: Evaluation(tuple(right), SIZES, **options)
        for name, right in zip(STREAMS, rights, strict=True)
    }


def level(*shares, **options):
    """The same share of each batch right, by stream."""
    return showing(*([int(share * size) for size in SIZES] for share in shares), **options)


def uneven(gain, wobble=0):
    """`gain` images of each batch more than half, and more or fewer from batch to batch."""
    right = [size // 2 + gain + wobble * (-1) ** place for place, size in enumerate(SIZES)]
    return showing(right, right)


def test_a_paired_comparison_is_that_of_the_images_themselves_with_batches_as_units():
    rng = np.random.default_rng(0)
    rights = rng.integers(10, 30, (2, 2, 4))
    one, other = showing(*rights[0]), showing(*rights[1])
    found = compare(one, other)
    means, variances = [], []
    for stream in range(2):
        # Written out image by image: who had it right, and in which batch it was.
        batch = np.repeat(np.arange(4), SIZES)
        gains = np.concatenate(
            [
                (np.arange(size) < rights[0, stream, place]).astype(float)
                - (np.arange(size) < rights[1, stream, place])
                for place, size in enumerate(SIZES)
            ]
        )
        mean = gains.mean()
        sums = [((gains - mean) * (batch == place)).sum() for place in range(4)]
        means.append(100 * mean)
        variances.append(100**2 * 4 / 3 * np.square(sums).sum() / len(gains) ** 2)
    assert found.mean == pytest.approx(np.mean(means))
    assert found.error == pytest.approx(math.sqrt(sum(variances)) / 2)
    assert compare(one, other, ["clean"]).mean == pytest.approx(means[0])


def test_the_error_is_right_on_average():
    """Over many draws, the difference lies within its 95 % interval about as often as it says."""
    rng = np.random.default_rng(1)
    within = 0
    for _ in range(400):
        common = rng.binomial(64, 0.5, 30)  # batches are hard or easy for both
        rights = [np.clip(common + rng.binomial(20, share, 30) - 10, 0, 64) for share in (0.5, 0.6)]
        one, other = ({"x": Evaluation(tuple(r), (64,) * 30)} for r in rights)
        found = compare(other, one)
        within += abs(found.mean - 100 * 2 / 64) <= found.margin
    assert 0.91 < within / 400 < 0.98


def test_a_difference_is_written_with_its_sign_and_half_its_interval():
    assert str(Difference(-3.14, 0.5)) == "−3.1 ± 1.0"
    assert str(Difference(-0.02, 0.1)) == "+0.0 ± 0.2"


def test_one_batch_alone_shows_nothing():
    one, other = ({"x": Evaluation((right,), (64,))} for right in (60, 10))
    assert not compare(one, other).is_clear


def test_a_score_is_the_mean_over_streams_however_long_they_are():
    long = Evaluation((100,) * 50, (100,) * 50)
    assert score({"a": long, "b": Evaluation((0, 0), (8, 8))}) == 50


def test_a_winner():
    found = choose(
        {"frozen": level(0.5, 0.5), "bn": level(0.5, 0.6), "tent": level(0.5, 0.9)}, COSTS
    )
    assert found.method == "tent" and found.alike == ("tent",)
    assert found.sentence.startswith("Take tent: +19")
    assert "over frozen and +1" in found.sentence and "mean over 2 streams" in found.sentence


def test_a_winner_on_the_only_stream_has_no_mean_over_streams():
    shares = {"frozen": 0.5, "tent": 0.9}
    shown = {name: {"clean": level(share, share)["clean"]} for name, share in shares.items()}
    assert choose(shown, COSTS).sentence.endswith("points over frozen.")


def test_frozen_where_all_else_is_worse():
    found = choose(
        {"frozen": level(0.5, 0.5), "bn": level(0.3, 0.4), "tent": level(0.1, 0.4)}, COSTS
    )
    assert found.method == "frozen"
    assert found.sentence.startswith(
        "Keep it frozen: all else is worse; the best of the others, bn, is at −1"
    )


def test_frozen_where_nothing_is_better_beyond_its_error():
    showings = {"frozen": uneven(0), "bn": uneven(-9), "tent": uneven(1, wobble=4)}
    found = choose(showings, COSTS)
    assert found.method == "frozen" and "tent" in found.alike
    assert (
        "nothing is better beyond its error; the best of the others, tent, is at +"
        in found.sentence
    )


def test_any_of_those_whose_differences_are_noise_and_the_cheapest_first():
    showings = {
        "frozen": level(0.2, 0.2),
        "bn": level(0.2, 0.3),
        "eata": uneven(8, wobble=-6),
        "tent": uneven(9, wobble=-2),
        "sar": uneven(10, wobble=2),
    }
    found = choose(showings, COSTS)
    assert set(found.alike) == {"sar", "tent", "eata"}
    assert found.method == "tent"  # cheaper than sar, as cheap as eata, and better
    assert found.sentence.startswith("Take tent, or sar or eata (the differences are noise): +")
    assert "at 2 times its cost" in why_not("sar", showings, found, COSTS)
    assert "as good as tent within error" in why_not("eata", showings, found, COSTS)
    assert "points against sar after 444 images" in why_not("bn", showings, found, COSTS)


def near_misses():
    """One that is within noise of another, but by more than a standard error; and a bad one."""
    even = (64,) * 4
    rights = (40,) * 4, (40, 36, 40, 36), (0,) * 4
    best, below, bad = ({"x": Evaluation(right, even)} for right in rights)
    apart = compare(below, best)
    assert 1 < -apart.mean / apart.error < 1.96
    return best, below, bad


def test_what_is_cheaper_is_taken_only_if_it_is_near_the_best():
    best, below, bad = near_misses()
    found = choose({"frozen": bad, "bn": bad, "tent": below, "sar": best}, COSTS)
    assert found.method == "sar" and found.alike == ("sar", "tent")


def test_frozen_is_kept_unless_something_is_better_beyond_all_noise():
    best, below, bad = near_misses()
    found = choose({"frozen": below, "bn": bad, "tent": best}, COSTS)
    assert found.method == "frozen" and found.alike == ("tent", "frozen")


def test_what_collapsed_and_lost_by_it_is_not_taken_however_good_it_is_elsewhere():
    bad = level(1.0, 0.3)
    bad["continual"] = replace(bad["continual"], collapsed=True)
    showings = {"frozen": level(0.5, 0.5), "bn": level(0.5, 0.6), "tent": bad}
    assert ranked(showings) == ["bn", "frozen"]
    assert why_dropped("tent", showings, "bn") == "collapsed on continual"
    good = level(1.0, 1.0, collapsed=True)  # a stream that shows few classes
    assert ranked({**showings, "tent": good})[0] == "tent"


def test_what_failed_is_not_taken():
    broken = {**level(1.0, 1.0), "continual": Evaluation((), (), failed="no memory")}
    showings = {"frozen": level(0.5, 0.5), "bn": level(0.5, 0.6), "tent": broken}
    assert "tent" not in ranked(showings)
    assert why_dropped("tent", showings, "bn") == "failed on continual: no memory"


def test_the_better_half_stays_and_those_that_always_come():
    showings = {
        name: level(share, share)
        for name, share in {"frozen": 0.1, "bn": 0.2, "a": 0.9, "b": 0.3, "c": 0.8}.items()
    }
    assert survivors(showings, 2) == ["frozen", "bn", "a", "c"]
