"""The table at the end of a sweep."""

import statistics

from msgspec.structs import replace
from short_runs import plan

from holdfast.bench.manifest import Manifest
from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import FACTORS, Point, expand
from holdfast.recipes.compose import compose
from holdfast.results.tables import sweep_document
from holdfast.results.writers import Page
from holdfast.util.terminal import as_text


def finished(path, run, accuracy):
    """A run that was never run."""
    folder = RunFolder(path)
    folder.path.mkdir()
    metrics = {"mean_accuracy": accuracy, "mean_accuracy_corrupted": accuracy - 2}
    metrics |= {
        "ece_15": accuracy / 1000,
        "bias": 0.2,
        "accuracy/fog": 1.0,
        "accuracy/original": 2.0,
    }
    folder.manifest = Manifest(
        classes=10, run={"seed": run.seed}, title=run.title, metrics=metrics, finished=True
    )
    return folder


def lines_of(points, folders):
    """Of the table, without its caption."""
    return as_text(Page(sweep_document(points, folders))).splitlines()[2:]


def test_seeds_are_one_line_with_their_spread(tmp_path):
    points = [Point(plan(seed=k), {"method": "bn"}) for k in range(3)]
    points.append(Point(plan("tent"), {"method": "tent", "tent.lr": "0.1"}))
    scores = [40.0, 42.0, 50.0, 60.0]
    folders = [
        finished(tmp_path / str(number), point.run, score)
        for number, (point, score) in enumerate(zip(points, scores, strict=True))
    ]
    lines = lines_of(points, folders)
    spread = f"{statistics.stdev(scores[:3]):.2f}"
    assert "mean of 2  " in lines[0] and "mean of 1  " in lines[0]
    ece = f"{statistics.stdev(score / 10 for score in scores[:3]):.1f}"
    means = ["44.00", "±", spread, "42.00", "±", spread, "4.4", "±", ece, "20.0", "±", "0.0"]
    assert lines[1].split() == ["bn", "3", *means]
    assert lines[2].split() == ["tent", "0.1", "1", "60.00", "58.00", "6.0", "20.0"]


def test_the_best_learning_rate_and_the_default_are_marked(tmp_path):
    points = expand({"method": ["tent", "eata"], "lr": True, "seeds": 2})
    assert len(points) == 20
    # The best for tent is the fourth; of eata's, none is better than the default.
    scores = {"tent": [1, 2, 3, 9, 5], "eata": [9, 2, 9, 4, 9]}
    rates = {name: [factor * compose(name).host.lr for factor in FACTORS] for name in scores}
    folders = []
    for number, point in enumerate(points):
        name = point.at["method"]
        which = min(range(5), key=lambda k: abs(rates[name][k] - float(point.at["lr"])))
        folders.append(finished(tmp_path / str(number), point.run, 10 * scores[name][which]))
    lines = [one.split() for one in lines_of(points, folders)[1:11]]
    marks = {"tent": ["2", "2", "default", "best", "2"], "eata": ["2", "2", "default,", "2", "2"]}
    assert [one[2] for one in lines] == [mark for name in scores for mark in marks[name]]
    assert lines[7][2:4] == ["default,", "best"]
    assert [one[0] for one in lines] == ["tent"] * 5 + ["eata"] * 5
    # A rate that failed is not the best.
    for number in (3, 8):
        folders[number] = None
    lines = lines_of(points, folders)
    assert "best" not in lines[4] and "best" in lines[5]


def test_a_learning_rate_at_which_a_method_hardly_acts_is_not_the_best(tmp_path):
    points = expand({"method": ["tent"], "lr": True})
    folders = []
    for number, point in enumerate(points):
        folder = finished(tmp_path / str(number), point.run, 10.0 + number)
        steps = {"steps": 1, "steps_due": 128, "step_rate": 1 / 128} if number == 4 else {}
        manifest = folder.manifest
        folder.manifest = replace(manifest, metrics={**manifest.metrics, **steps})
        folders.append(folder)
    lines = lines_of(points, folders)
    assert "best" in lines[4] and "best" not in lines[5]
    idle = [line.startswith("tent, hardly acted: 1 step of 128") for line in lines[1:6]]
    assert idle == [False] * 4 + [True]
    assert "Hardly acted: took fewer than 5 %" in " ".join(lines)
