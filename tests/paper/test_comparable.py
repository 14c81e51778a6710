"""When a number of ours may stand beside a published one."""

from dataclasses import replace

import pytest
from made import HASHES, make_without_rows

from holdfast.bench.plan import Run
from holdfast.cli.options import Setup
from holdfast.paper.answer import chosen, evaluate, plans
from holdfast.paper.comparable import CONTROL, planned_differences, published_row
from holdfast.paper.experiments import Line, find_experiment
from holdfast.paper.published import published

CIFAR = find_experiment("table-cifar100")
TABLE = published()["table-cifar100"]
SAME = Setup(data="cifar100-c", model="resnext29:augmix.pt", threads=1, device="cpu")

ONE_THING = {
    "the data is /x/CIFAR-100-C, not cifar100-c": {"data": "/x/CIFAR-100-C"},
    "the model is resnet20:w.pt, not resnext29 (AugMix)": {"model": "resnet20:w.pt"},
    "the model is own.code:net, not resnext29 (AugMix)": {"model": "own.code:net"},
    "the model's normalisation was given": {"mean": "0.4", "std": "0.2"},
    "severity is 3, not 5": {"severity": 3},
    "1,000 images a domain, not 10,000": {"limit": 1000},
    "batches are of 200 images, not 64": {"batch": 200},
    "the preset is imagenet-c, not cifar100-c": {"preset": "imagenet-c"},
    "the preset is none, not cifar100-c": {"preset": None},
    "the stream is continual(order=rotta), not continual": {"stream": "continual(order=rotta)"},
    "the source is known from own.npz, not from the training set": {"source": "own.npz"},
    "forward passes are in bfloat16": {"precision": "bfloat16"},
}


def changed(run, **flags):
    return Run.of(**{**run.flat, **flags})


def the_run(method="eata", setup=SAME):
    return setup.plan(method, 0, preset="cifar100-c")


@pytest.mark.parametrize("reason", ONE_THING)
def test_one_thing_that_differs_is_one_reason(reason):
    assert planned_differences(the_run(), CIFAR) == []
    assert planned_differences(changed(the_run(), **ONE_THING[reason]), CIFAR) == [reason]


@pytest.mark.parametrize(
    ("model", "same"),
    [
        ("resnet50:w.pt", True),
        ("torchvision:resnet50:IMAGENET1K_V1", True),
        ("torchvision:resnet18", False),
        ("timm:resnet50.tv_in1k", True),
        ("timm:resnet50d.a1_in1k", False),
    ],
)
def test_architectures_by_name(model, same):
    run = Setup(data="imagenet-c", model=model, device="cpu").plan("eata", 0, preset="imagenet-c")
    assert (planned_differences(run, find_experiment("labels")) == []) is same


def test_a_limit_that_cuts_nothing_and_the_training_set_by_name_are_the_same():
    run = changed(the_run(), limit=10_000, source="cifar100")
    assert planned_differences(run, CIFAR) == []


def test_random_orders_are_left_open_but_have_to_be_random():
    experiment = find_experiment("random-order")
    setup = Setup(data="imagenet-c", model="resnet50:w.pt", device="cpu")
    *runs, (line, control) = plans(experiment, setup)
    assert line == CONTROL
    for _, run in [*runs, (line, control)]:
        assert planned_differences(run, experiment) == []
    fixed = changed(runs[0][1], stream="continual")
    [reason] = planned_differences(fixed, experiment)
    assert reason.startswith("the stream is continual, not continual(order=random")


def test_published_rows_are_found_wherever_they_stand():
    alpha = find_experiment("alpha")
    assert published_row(alpha, Line("", "eata")).mean == 49.81
    assert published_row(alpha, Line("", "eata+debias(alpha=0.996)")).mean == 51.32
    assert published_row(alpha, Line("", "eata+debias(alpha=0.9)")) is None
    sizes = find_experiment("batch-size")
    assert published_row(sizes, Line("", "eata", 64)).mean == 49.81
    assert published_row(sizes, Line("", "eata", 32)) is None
    # Of the same stream only: in random order TENT has 14.50, in the paper's 32.56.
    assert published_row(find_experiment("random-order"), Line("", "tent")).mean == 14.50
    assert published_row(find_experiment("random-order"), Line("", "frozen")) is None
    assert published_row(find_experiment("time"), Line("", "tent")).mean == 32.56


def test_tables_agree_where_several_have_a_method():
    """So it does not matter which of them is asked."""
    tables = [table for table in published().values() if table.of_paper]
    for one in tables:
        for other in tables:
            if (one.benchmark, one.stream) == (other.benchmark, other.stream):
                for row in one.rows:
                    found = other.row(row.method)
                    assert found is None or found.mean == row.mean


def test_a_control_joins_where_all_else_is_the_same_and_only_there():
    labels = find_experiment("labels")
    setup = Setup(data="imagenet-c", model="resnet50:w.pt", device="cpu", seeds=3)
    planned = plans(labels, setup)
    assert [line for line, _ in planned].count(CONTROL) == 1
    assert planned[-1][1].composition.names == "frozen"
    assert planned[-1][1].preset == "imagenet-c"
    for other in (
        replace(setup, limit=100),
        replace(setup, data="glyphs-c"),
        replace(setup, batch=8),
    ):
        assert CONTROL not in [line for line, _ in plans(labels, other)]
    # A table that has the row needs no other.
    assert len(plans(CIFAR, SAME)) == len(CIFAR.lines)
    # Nor is it analysed.
    distances = plans(find_experiment("distances"), setup)
    assert [run.analysis for _, run in distances] == [True] * 6 + [False]


@pytest.fixture
def answer(tmp_path):
    """Of runs that score what the paper prints, but for what a test changes."""

    def made(experiment=CIFAR, off=0.0, images=10_000, hashes=HASHES, without=()):
        found = {}
        for number, (line, run) in enumerate(plans(experiment, SAME)):
            if line.label in without:
                continue
            accuracy = dict(TABLE.row(line.method).by_domain)
            if line.method == "frozen":
                accuracy["glass_blur"] += off
            path = tmp_path / f"{experiment.id}-{number}"
            last = hashes if line.label == "RMT" else HASHES
            found[line] = [make_without_rows(path, run, accuracy, images=images, hashes=last)]
        return evaluate(experiment, found)

    return made


def test_the_same_is_comparable(answer):
    assert answer().differences == ()


def test_rounding_is_forgiven(answer):
    assert answer(off=0.09).differences == ()


def test_other_data_or_weights_show_in_the_control(answer):
    assert answer(off=-0.11).differences == (
        "data or weights are not the paper's, since frozen has 45.80 % on glass_blur and the "
        "paper's Source 45.91 %",
    )


def test_without_a_control_nothing_is_shown(answer):
    assert answer(without=("Source",)).differences == (
        "no run of frozen shows that data and weights are the paper's",
    )


def test_fewer_images_than_the_paper_s(answer):
    assert answer(images=5000).differences == ("5,000 images a domain, not 10,000",)


def test_runs_of_several_weights(answer):
    other = {**HASHES, "model": "another"}
    assert answer(hashes=other).differences == ("runs are of several data sets or weights",)


def test_runs_of_different_code(answer):
    other = {**HASHES, "code": "another"}
    assert answer(hashes=other).differences == ("runs were made by different code",)


def test_a_control_that_is_no_row_of_the_table(answer):
    """Rows without the Source: the control is planned beside them, and decides all the same."""
    some = chosen(CIFAR, ["eata", "eata+debias"])
    assert answer(some).differences == ()
    assert answer(replace(some, id="again"), off=3).differences[0].startswith("data or weights")
    labels = [row.label for row in answer(replace(some, id="rows")).grids[0].rows]
    assert labels == ["EATA", "EATA + Ours"]
