"""`holdfast paper`: real runs on the embedded set, and the numbers that come out of them."""

import re
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import polars as pl
import pytest
from made import make_without_rows

from holdfast.bench import materials as materials_module
from holdfast.bench.many import Ended, perform_all
from holdfast.bench.store import RunFolder
from holdfast.cli import paper as paper_cli
from holdfast.cli.options import Setup
from holdfast.cli.paper import Paper
from holdfast.cli.run import perform_watched
from holdfast.paper.answer import evaluate, plans
from holdfast.paper.document import document
from holdfast.paper.experiments import Line, experiments, find_experiment
from holdfast.paper.measures import MEASURES
from holdfast.paper.published import published
from holdfast.results.stored import StoredRun
from holdfast.results.writers import Page
from holdfast.util.terminal import as_text

TENT, TENT_OURS = Line("TENT", "tent"), Line("TENT + Ours", "tent+debias")


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """Few source images, since each is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materials_module, "DRAWN_IMAGES", 320)
        yield Setup(limit=24, threads=1, device="cpu", out=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def main_table(setup):
    """What is printed of some lines of the main table, and its Markdown."""
    file = setup.out / "tables" / "main.md"
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("sys.argv", ["holdfast", "paper", "table-imagenet", "--limit", "24"])
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        Paper(
            "table-imagenet",
            replace(setup, seeds=2),
            method=("frozen", "tent", "tent+debias"),
            markdown=file,
        ).run()
    return "\n".join(said), file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def geometry(setup, main_table):
    """The distances of two methods that need little of the source."""
    experiment = replace(find_experiment("distances"), lines=(TENT, TENT_OURS))
    return experiment, perform(experiment, setup)


def perform(experiment, setup):
    planned = plans(experiment, setup)
    found = {}
    for (line, _), outcome in zip(
        planned, perform_all([run for _, run in planned], setup.out), strict=True
    ):
        assert outcome.error is None
        found.setdefault(line, []).append(outcome.folder)
    return found


def stored(setup, method, **wanted):
    """Finished runs of a method below the folder, by seed."""
    folders = [RunFolder(path.parent) for path in setup.out.glob("*/manifest.json")]
    fitting = [
        one
        for one in folders
        if one.manifest.run["method"] == method
        and all(one.manifest.run[name] == value for name, value in wanted.items())
    ]
    return sorted(fitting, key=lambda one: one.manifest.run["seed"])


def table(text, title, row):
    """The cells of a row of a plain table, by heading."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(title))
    header = re.split(r"\s{2,}", lines[at + 1].strip())
    line = next(line for line in lines[at + 2 :] if re.split(r"\s{2,}", line.strip())[0] == row)
    return dict(zip(header, re.split(r"\s{2,}", line.strip()), strict=True))


def test_the_main_table_prints_what_the_store_holds(setup, main_table):
    text, _ = main_table
    for label, method in {"Source": "frozen", "TENT": "tent", "TENT + Ours": "tent+debias"}.items():
        rows = [one.rows for one in stored(setup, method)]
        assert len(rows) == 2
        # Correct images by domain, counted from the rows themselves.
        by_seed = [
            one.group_by("domain", maintain_order=True).agg(
                accuracy=100 * pl.col("correct").sum() / pl.col("scored").sum()
            )
            for one in rows
        ]
        cells = table(text, "Accuracy, %", label)
        for heading, domain in {
            "gauss": "gaussian_noise",
            "fog": "fog",
            "original": "original",
        }.items():
            values = [one.filter(pl.col("domain") == domain)["accuracy"].item() for one in by_seed]
            assert cells[heading] == f"{fmean(values):.2f}"
        means = [one["accuracy"].mean() for one in by_seed]
        fifteen = [one["accuracy"][:-1].mean() for one in by_seed]
        assert cells["mean 16"] == f"{fmean(means):.2f} ± {stdev(means):.2f}"
        assert cells["mean 15"] == f"{fmean(fifteen):.2f} ± {stdev(fifteen):.2f}"


def test_the_gain_is_that_of_the_runs_with_its_sign(setup, main_table):
    text, _ = main_table
    host, ours = (
        [one.manifest.metrics["mean_accuracy"] for one in stored(setup, method)]
        for method in ("tent", "tent+debias")
    )
    gains = [one - other for one, other in zip(ours, host, strict=True)]
    cells = table(text, "Change over the host", "TENT + Ours − TENT")
    assert cells["mean 16"] == f"{fmean(gains):+.2f} ± {stdev(gains):.2f}".replace("-", "−")
    papers = table(text, "Published: change over the host", "TENT + Ours − TENT")
    assert (papers["mean 16"], papers["higher in"]) == ("+11.67", "16 of 16")
    assert not any(name.startswith("paper:") for name in cells)
    helped = "1 of 1" if fmean(gains) > 0 else "0 of 1"
    assert f"raises the mean over 16 domains in {helped} cases here" in text
    assert ("does not help in TENT + Ours" in text) is (fmean(gains) <= 0)


def test_on_the_embedded_set_published_numbers_stand_apart(main_table):
    text, markdown = main_table
    for said in (text, markdown.replace("\\", "")):
        assert (
            "NOT COMPARABLE with the paper: the data is glyphs-c, not imagenet-c; the model" in said
        )
        assert "24 images a domain, not 50,000" in said
    assert "  published" not in text
    assert table(text, "Published: Accuracy", "TENT + Ours")["mean 16"] == "44.23"
    assert "Rows of the paper that were not asked for: CoTTA," in text


def test_markdown_has_the_same_numbers(main_table):
    text, markdown = main_table
    cells = table(text, "Accuracy, %", "TENT + Ours")
    assert f"| {' | '.join(cells.values())} |" in markdown.splitlines()
    assert "**Accuracy, %**" in markdown
    assert "Made with `holdfast paper table-imagenet --limit 24`." in markdown
    assert f"| {' | '.join(cells)} |" in markdown.splitlines()


def test_a_second_time_takes_what_is_there(setup, main_table, capsys):
    before = {path: path.stat().st_mtime_ns for path in setup.out.glob("*/rows.parquet")}
    Paper("table-imagenet", setup, method=("tent",)).run()
    assert {path: path.stat().st_mtime_ns for path in setup.out.glob("*/rows.parquet")} == before
    assert "seeds: 0;" in capsys.readouterr().out


def test_a_sweep_prints_what_the_store_holds(setup, main_table, capsys):
    methods = ("debias(lambda_ema=1)", "debias(lambda_ema=5)")
    Paper("lambda-ema-alone", setup, method=methods).run()
    text = capsys.readouterr().out
    means = []
    for label, method in zip("15", methods, strict=True):
        [folder] = stored(setup, method)
        means.append(folder.manifest.metrics["mean_accuracy"])
        assert table(text, "Mean accuracy, %", label)["mean 16"] == f"{means[-1]:.2f}"
    one, five = (f"{mean:.2f}" for mean in means)
    best = "1, 5" if one == five else "1" if means[0] > means[1] else "5"
    assert f"Best λ_ema here: {best} ({max(one, five)}); in the paper: 1 (45.20)." in text


def test_distances_are_those_of_the_analysis(setup, geometry):
    experiment, found = geometry
    text = as_text(Page(document(evaluate(experiment, found))))
    titles = {
        "gap": "Gap between source and target",
        "intra": "Distance within classes",
        "inter": "Distance between classes",
        "ratio": "Ratio of the two",
    }
    for line, [folder] in found.items():
        assert folder.manifest.run["analysis"] is True
        analysis = pl.read_parquet(folder.path / "analysis.parquet")
        for name, title in titles.items():
            cells = table(text, title, line.label)
            assert cells["glass"] == f"{analysis[name][4]:.3f}"
            assert cells["mean"] == f"{analysis[name].mean():.3f}"
    assert "NOT COMPARABLE with the paper: the data is glyphs-c" in text
    assert "Of this figure it prints no numbers." in text
    assert "The paper finds, on imagenet-c: With Ours the gap" in text


def test_measures_against_rows(geometry):
    """Each figure once more, from the rows and by hand."""
    _, found = geometry
    [folder] = found[TENT_OURS]
    run = StoredRun.of(folder)
    rows = folder.rows
    fog = rows.filter(pl.col("domain") == "fog")
    label, predicted, confidence, entropy = (
        np.concatenate([np.array(one) for one in rows[name]])
        for name in ("label", "predicted", "confidence", "entropy")
    )
    read = {name: one.read(run) for name, one in MEASURES.items()}

    assert read["time"]["fog"] == pytest.approx(1000 * fog["time"].mean())
    assert read["time"]["mean"] == pytest.approx(1000 * rows["time"].mean())
    in_fog = np.concatenate([np.array(one) for one in fog["entropy"]])
    assert read["entropy"]["fog"] == pytest.approx(in_fog.mean())

    counts = np.bincount(predicted, minlength=50)
    fair = len(label) / 50
    assert read["predicted"]["most"] == pytest.approx(counts.max() / fair)
    assert read["predicted"]["least"] == pytest.approx(counts.min() / fair)
    assert read["predicted"]["median"] == pytest.approx(np.sort(counts)[::-1][24] / fair)
    assert read["predicted"]["never"] == (counts == 0).sum()
    apart = np.abs(counts - np.bincount(label, minlength=50)).sum() / 2
    assert read["predicted"]["bias"] == pytest.approx(100 * apart / len(label))

    fogs = np.concatenate([np.array(one) for one in fog["predicted"]])
    fog_counts = np.bincount(fogs, minlength=50)
    assert read["favourite"]["fog"] == pytest.approx(fog_counts.max() / (len(fogs) / 50))
    assert read["never"]["fog"] == (fog_counts == 0).sum()

    bins = np.minimum((confidence * 20).astype(int), 19)
    here = bins == 12
    assert read["confidence"]["0.60"] == pytest.approx(100 * here.mean())
    assert read["confidence"]["above 0.95"] == pytest.approx(100 * (confidence > 0.95).mean())
    right = label == predicted
    assert read["accuracy by confidence"]["0.60"] == pytest.approx(100 * right[here].mean())
    assert read["entropy by confidence"]["0.60"] == pytest.approx(entropy[here].mean())
    gaps = [abs(right[bins == k].sum() - confidence[bins == k].sum()) for k in range(20)]
    assert read["ece"]["20 bins"] == pytest.approx(100 * sum(gaps) / len(label))
    assert read["ece"]["accuracy"] == pytest.approx(100 * right.mean())
    assert read["to source"]["snow"] == folder.analysis["similarity_source"][7]
    assert read["to target"]["snow"] == folder.analysis["similarity_target"][7]


def test_every_experiment_is_listed(capsys):
    Paper("list").run()
    text = capsys.readouterr().out
    for one in experiments().values():
        line = next(line for line in text.splitlines() if line.split()[0] == one.id)
        assert one.where in line and one.asks in line
        assert str(len(plans(one, Setup(device="cpu")))) in re.split(r"\s{2,}", line)


def test_a_run_that_fails_leaves_a_gap_and_says_so(setup, main_table, monkeypatch, capsys):
    def fails(runs, *others):
        done = perform_watched(runs, *others)
        return [Ended(done[0].run, error="no memory"), *done[1:]]

    monkeypatch.setattr(paper_cli, "perform_watched", fails)
    with pytest.raises(SystemExit):
        Paper("table-imagenet", setup, method=("frozen", "tent")).run()
    text = capsys.readouterr().out
    assert set(table(text, "Accuracy, %", "Source").values()) == {"Source", "–"}
    assert "Not finished, and so left empty: Source." in text
    assert "Failed: frozen seed 0: no memory" in text
    with pytest.raises(ValueError, match="no memory"):
        Paper("table-imagenet", setup, method=("frozen",)).run()


def test_time_is_taken_of_one_run_at_a_time():
    with pytest.raises(ValueError, match="leave out --jobs"):
        Paper("time", jobs=2).run()


# Arithmetic, on runs that were never run.


def test_orders_and_batch_sizes(tmp_path):
    domains = published()["table-imagenet"].domains
    setup = Setup(threads=1, device="cpu")

    def answer(id, score):
        experiment = find_experiment(id)
        found = {}
        for number, (line, run) in enumerate(plans(experiment, setup)):
            accuracy = dict.fromkeys(domains, score(line, run))
            folder = make_without_rows(tmp_path / f"{id}{number}", run, accuracy, images=10_000)
            found.setdefault(line, []).append(folder)
        return evaluate(experiment, found)

    # Over three orders: 30, 31 and 32 for the first, hence 31 ± 1.
    orders = answer("random-order", lambda line, run: 30.0 + run.resolved_stream.order_seed)
    for row in orders.grids[0].rows:
        assert row.cells["mean 16"].value == 31 and row.cells["mean 16"].std == 1
    tent = next(row for row in orders.grids[0].published if row.label == "TENT")
    assert (tent.cells["mean 16"].value, tent.cells["mean 16"].std) == (14.50, 1.43)

    # By batch size, one row a method: ours is ahead at 16 and above.
    def score(line, run):
        gain = 20 if run.stream.batch >= 16 else -1
        return run.stream.batch + (gain if run.method == "eata+debias" else 0)

    sizes = answer("batch-size", score)
    sixteen, fifteen = sizes.grids
    assert sixteen.columns == fifteen.columns == ("128", "64", "32", "16", "8", "4")
    assert [row.label for row in sixteen.rows] == ["EATA", "EATA + Ours"]
    assert [sixteen.rows[0].cells[name].value for name in ("128", "8")] == [128, 8]
    text = as_text(Page(document(sizes)))
    assert "EATA + Ours is above EATA at batch size 128, 64, 32, 16, and not at 8, 4." in text
    printed = table(text, "Published: change over the host", "EATA + Ours − EATA")
    assert printed["64"] == "+1.51"
