"""The paper's experiments as data: all of them, line by line, and the runs they ask for."""

import pytest

from holdfast.cli.options import Setup
from holdfast.data.streams import parse
from holdfast.paper.answer import chosen, plans
from holdfast.paper.experiments import experiments, find_experiment
from holdfast.paper.measures import MEASURES
from holdfast.paper.published import published, published_figures
from holdfast.recipes.compose import compose

ALL = list(experiments().values())
TABLES = [table for table in published().values() if table.of_paper]
SETUP = Setup(threads=1, device="cpu")

# From the paper's LaTeX. Figure 2 is a drawing of the method.
IN_PAPER = {
    *(f"Table {number}" for number in range(1, 10)),
    *("Figure 1", "Figure 3", "Figure 5", "Figure 8"),
    *(f"Figure 4 ({letter})" for letter in "abcd"),
    *("Figures 6 (a) and 7", "Figure 6 (b)", "Figure 6 (c) and (d)"),
}


def settings_of(experiment, name):
    """The values of a setting along an experiment's lines that have the method."""
    found = [compose(line.method, preset="imagenet-c").plugins for line in experiment.lines]
    return [getattr(plugins[-1], name) for plugins in found if plugins]


def test_every_table_and_figure_has_its_experiment_and_ids_are_unique():
    assert len({one.id for one in ALL}) == len(ALL) == 21
    wheres = [one.where for one in ALL if not one.where.startswith("none")]
    assert len(wheres) == len(set(wheres))
    assert set(wheres) == IN_PAPER


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.id)
def test_no_published_row_is_missing(table):
    [experiment] = [one for one in ALL if one.printed.id == table.id and one.where in table.where]
    assert experiment.benchmark == table.benchmark
    assert parse(experiment.stream) == parse(table.stream)
    ours = [
        (one.label, compose(one.method, preset=table.benchmark.preset)) for one in experiment.lines
    ]
    for row in table.rows:
        assert (row.label, compose(row.method, preset=table.benchmark.preset)) in ours
    assert len(ours) == len(table.rows)


@pytest.mark.parametrize("figure", published_figures().values(), ids=lambda figure: figure.id)
def test_no_method_of_a_figure_is_missing(figure):
    found = [one for one in ALL if one.printed.id == figure.id]
    assert found
    for experiment in found:
        lines = {
            (compose(line.method, preset="imagenet-c"), line.batch or figure.benchmark.batch_size)
            for line in experiment.lines
        }
        for method in figure.methods:
            for batch in figure.batch_sizes:
                assert (compose(method, preset="imagenet-c"), batch) in lines, experiment.id


def test_what_is_swept_is_what_the_paper_says():
    found = experiments()
    assert settings_of(found["alpha"], "alpha") == [0.9, 0.96, 0.99, 0.996, 0.999]
    assert settings_of(found["lambda-ema"], "lambda_ema") == [1, 2, 3, 4, 5]
    assert settings_of(found["lambda-src"], "lambda_src") == [10, 20, 30, 40, 50, 60, 70]
    assert [line.batch for line in found["batch-size"].lines] == 2 * [128, 64, 32, 16, 8, 4]
    for id in ("lambda-ema", "lambda-src"):
        assert "names no value" in found[id].note


@pytest.mark.parametrize("data", ["glyphs-c", "cifar100-c", "imagenet-c"])
@pytest.mark.parametrize("experiment", ALL, ids=lambda one: one.id)
def test_every_line_becomes_runs_that_compose(experiment, data):
    planned = plans(experiment, Setup(data=data, threads=1, device="cpu", seeds=2, seed=5))
    orders = 3 if experiment.id == "random-order" else 1
    assert len(planned) == len(experiment.lines) * orders * 2
    preset = experiment.benchmark.preset if data == "glyphs-c" else data
    for line, run in planned:
        assert run.composition == compose(line.method, preset=preset)
        assert run.resolved_stream.batch == (line.batch or 64)
        assert run.seed in (5, 6)
        assert run.analysis == (experiment.id in ("distances", "prototypes"))
        assert len(run.resolved_stream.domains()) == 16
        assert run.resolved_stream.domains()[-1] == "original"
    # No run twice, and every measure is one that there is.
    assert len({run for _, run in planned}) == len(planned)
    assert set(experiment.measures) <= set(MEASURES)


def test_random_orders_differ_and_are_the_same_for_every_method():
    planned = plans(find_experiment("random-order"), SETUP)
    orders = {}
    for line, run in planned:
        orders.setdefault(line, []).append(run.resolved_stream.domains())
    first, *others = orders.values()
    assert len(set(first)) == 3
    assert all(other == first for other in others)


def test_experiments_share_runs():
    """What a setting says anyway is left out, since a folder goes by the method as written."""
    table = {run for _, run in plans(find_experiment("table-imagenet"), SETUP)}
    labels = plans(find_experiment("labels"), SETUP)
    assert [run in table for _, run in labels] == [True, True, False]
    output = plans(find_experiment("cotta-output"), SETUP)
    assert [run in table for _, run in output] == [True, False, True]
    bias = plans(find_experiment("bias"), SETUP)
    assert all(run in table for _, run in bias)


def test_a_preset_of_ones_own_wins():
    for _, run in plans(find_experiment("labels"), SETUP, preset="cifar100-c"):
        assert run.preset == "cifar100-c"


def test_hosts_are_what_a_plug_in_was_added_to():
    found = {
        one.id: {
            line.label: host.label for line in one.lines if (host := one.host_of(line)) is not None
        }
        for one in ALL
    }
    assert found["table-imagenet"] == {
        "TENT + Ours": "TENT",
        "EATA + TTAC": "EATA",
        "EATA + Ours": "EATA",
        "CoTTA + Ours": "CoTTA",
        "RMT + Ours": "RMT",
    }
    assert found["consistency"]["EATA + Ours + L_cons"] == "EATA + Ours"
    assert found["cotta-output"] == {
        "CoTTA + Ours Teacher Output": "CoTTA",
        "CoTTA + Ours Student Output": "CoTTA",
    }
    assert set(found["alpha"].values()) == {"EATA"} and len(found["alpha"]) == 5
    assert found["lambda-ema-alone"] == {}


def test_only_some_lines():
    table = find_experiment("table-imagenet")
    assert [line.label for line in chosen(table, ["eata + debias", "frozen"]).lines] == [
        "Source",
        "EATA + Ours",
    ]
    with pytest.raises(ValueError, match=r"table-imagenet has no line 'bn'; it has frozen, t3a"):
        chosen(table, ["bn"])


def test_mistakes_say_what_to_do():
    with pytest.raises(ValueError, match="Did you mean 'batch-size'"):
        find_experiment("batchsize")
    with pytest.raises(ValueError, match="about the batch size: leave out --batch"):
        plans(find_experiment("batch-size"), Setup(batch=32))
