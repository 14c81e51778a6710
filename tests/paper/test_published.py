"""The published numbers are those of their sources, and hang together."""

import zlib
from itertools import groupby
from statistics import fmean

import pytest

from holdfast.data.streams import parse
from holdfast.models.find import NETWORKS
from holdfast.paper.published import _file, published, published_figures
from holdfast.recipes.compose import compose

# A mean is printed with two digits after the point; the rest forgives floats.
ROUNDING = 0.005 + 1e-9

TABLES = published()
FIGURES = published_figures()
PAPER = [table for table in TABLES.values() if table.of_paper]
ROWS = [(table, row) for table in TABLES.values() for row in table.rows]

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)

# Taken from the paper's LaTeX, not from the file: where in the paper, rows, whether they go by
# domain, and the crc32 of all numbers as printed, row by row, with a blank between them.
PRINTED = {
    "table-imagenet": ("Table 1 (tab:IN)", 16, True, 246999750),
    "table-cifar100": ("Table 2 (tab:cifar100)", 16, True, 788419960),
    "random-order": ("Table 3 (tab:rand_seq)", 12, False, 3725354233),
    "components": ("Table 4 (tab:IN_ablation)", 7, False, 1676748603),
    "consistency": ("Table 5 (tab:consistency_loss)", 8, True, 3144585903),
    "lambda-ema-alone": ("Table 6 (tab:lambda_ema_ours_only)", 5, False, 1983329380),
    "lambda-src-alone": ("Table 7 (tab:lambda_src_ours_only)", 7, False, 2406623593),
    "labels": ("Table 8 (tab:soft_hard_label)", 3, True, 2622647857),
    "cotta-output": ("Table 9 (tab:cotta_output)", 3, True, 3489384067),
}


def resolved(method, benchmark):
    return compose(method, preset=benchmark.preset)


def test_every_table_of_the_paper_is_there_in_its_order():
    assert [table.id for table in PAPER] == list(PRINTED)
    assert [table.where for table in PAPER] == [where for where, *_ in PRINTED.values()]


@pytest.mark.parametrize("table", PAPER, ids=lambda table: table.id)
def test_every_digit_is_as_printed(table):
    """A mean forgives a wrong last digit, and two numbers exchanged; this does not."""
    _, rows, by_domain, checksum = PRINTED[table.id]
    numbers = []
    for row in table.rows:
        assert len(row.by_domain) == (16 if by_domain else 0)
        numbers += [*row.by_domain.values(), row.mean, *([] if row.std is None else [row.std])]
    assert len(table.rows) == rows
    assert zlib.crc32(" ".join(f"{number:.2f}" for number in numbers).encode()) == checksum


def test_means_that_are_not_those_of_their_rows():
    """One in 46: all others agree with their rows to the last digit printed."""
    found = [
        (table.id, row.label, row.mean, round(fmean(row.by_domain.values()), 4))
        for table, row in ROWS
        if row.by_domain and abs(fmean(row.by_domain.values()) - row.mean) > ROUNDING
    ]
    assert found == [("table-cifar100", "EATA + Ours", 69.53, 69.5356)]
    assert sum(bool(row.by_domain) for _, row in ROWS) == 46


def test_numbers_are_percent():
    for _, row in ROWS:
        given = [row.mean, *row.by_domain.values(), *([] if row.std is None else [row.std])]
        assert all(0 < number < 100 for number in given), row
    stated = [each.value for figure in FIGURES.values() for each in figure.stated]
    assert stated == [49.81, 51.32, 25, 49.81]


def test_the_paper_s_protocol():
    for table in PAPER:
        assert "2403.01344" in table.source
        assert table.domains == (*CORRUPTIONS, "original")
        assert (table.benchmark.severity, table.benchmark.batch_size) == (5, 64)
        assert table.benchmark.runs == 3
        assert table.benchmark.data == table.benchmark.preset
    networks = {table.id: (table.benchmark.data, table.benchmark.network) for table in PAPER}
    assert networks.pop("table-cifar100") == ("cifar100-c", "resnext29")
    assert set(networks.values()) == {("imagenet-c", "resnet50")}
    streams = {table.id: table.stream for table in PAPER}
    assert streams.pop("random-order") == "continual(order=random)"
    assert set(streams.values()) == {"continual"}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.id)
def test_streams_and_networks_are_those_of_holdfast(table):
    stream = parse(table.stream)
    assert stream.batch == table.benchmark.batch_size
    assert stream.clean == ("original" in table.domains)
    assert set(table.domains) - {"original"} == set(CORRUPTIONS)
    assert table.benchmark.network in NETWORKS


def test_every_method_composes_and_none_comes_twice_in_a_table():
    for table in TABLES.values():
        methods = [resolved(row.method, table.benchmark) for row in table.rows if row.method]
        assert len(set(methods)) == len(methods)
    for figure in FIGURES.values():
        drawn = [resolved(method, figure.benchmark) for method in figure.methods]
        assert len(set(drawn)) == len(drawn)
        assert {resolved(each.method, figure.benchmark) for each in figure.stated} <= set(drawn)
    assert [row.label for _, row in ROWS if not row.method] == ["PeTTA", "PeTTA"]


@pytest.mark.parametrize(
    ("table", "label", "settings"),
    [
        ("table-imagenet", "Ours-Only", {"lambda_ema": 2, "lambda_src": 20, "alpha": 0.996}),
        ("table-imagenet", "EATA + Ours", {"lambda_ema": 2, "lambda_src": 50, "alpha": 0.996}),
        ("table-imagenet", "RMT + Ours", {"lambda_ema": 0.5, "lambda_src": 0.01}),
        ("table-cifar100", "RMT + Ours", {"lambda_ema": 1, "lambda_src": 0.01}),
        ("components", "EATA, L_ema, Normal., Filter.", {"lambda_ema": 2, "lambda_src": 0}),
        ("components", "EATA, L_src, Filter.", {"lambda_ema": 0, "lambda_src": 50}),
        ("components", "EATA, L_ema, L_src", {"normalize": False, "filter": False}),
        ("components", "EATA, L_ema, L_src, Filter.", {"normalize": False, "filter": True}),
        ("components", "EATA, L_ema, L_src, Normal.", {"normalize": True, "filter": False}),
        ("lambda-ema-alone", "4", {"lambda_ema": 4, "lambda_src": 20}),
        ("lambda-src-alone", "70", {"lambda_ema": 2, "lambda_src": 70}),
        ("labels", "EATA + Ours Hard Label", {"labels": "hard"}),
        ("labels", "EATA + Ours Soft Label", {"labels": "soft"}),
    ],
)
def test_a_label_means_what_its_method_sets(table, label, settings):
    (row,) = (row for row in TABLES[table].rows if row.label == label)
    debias = resolved(row.method, TABLES[table].benchmark).methods[-1]
    assert debias.name == "debias"
    assert {name: getattr(debias, name) for name in settings} == settings


def test_whose_output_leaves_cotta():
    rows = TABLES["cotta-output"].rows
    hosts = [resolved(row.method, TABLES["cotta-output"].benchmark).host for row in rows]
    assert [host.predict for host in hosts] == ["teacher", "teacher", "student"]
    augment = [row.method.rpartition("(")[2] for row in TABLES["consistency"].rows]
    labels = [row.label for row in TABLES["consistency"].rows]
    assert [("CoTTA-Aug" in label) for label in labels] == [a == "augment=cotta)" for a in augment]


def test_a_row_is_found_however_its_method_is_written():
    table = TABLES["table-imagenet"]
    row = table.row("eata + debias(lambda_src = 50)")
    assert row is table.row("eata+debias")
    assert (row.label, row.mean, row.std) == ("EATA + Ours", 51.32, None)
    assert (row.by_domain["fog"], row.by_domain["original"]) == (60.23, 74.20)
    assert list(row.by_domain) == list(table.domains)
    assert table.row("debias(lambda_src=20)").label == "Ours-Only"
    assert table.row("debias(lambda_src=50)") is None
    assert table.row("rdumb") is None
    order = TABLES["random-order"].row("tent")
    assert (order.mean, order.std, order.by_domain) == (14.50, 1.43, {})
    # The same words under another preset are other settings.
    assert TABLES["table-cifar100"].row("rmt+debias(lambda_ema=0.5)") is None
    assert table.row("rmt+debias(lambda_ema=0.5)").mean == 42.78


def test_a_method_has_the_same_numbers_wherever_the_paper_repeats_it():
    """On the same data and stream; no exceptions."""
    said = []
    for table in PAPER:
        for row in table.rows:
            key = (table.benchmark.data, table.stream, str(resolved(row.method, table.benchmark)))
            said.append((key, row.mean, tuple(row.by_domain.values())))
    for figure in FIGURES.values():
        for each in figure.stated:
            if each.quantity == "mean":
                method = str(resolved(each.method, figure.benchmark))
                said.append(((figure.benchmark.data, "continual", method), each.value, ()))
    repeated = 0
    for _, group in groupby(sorted(said), key=lambda each: each[0]):
        together = list(group)
        repeated += len(together) > 1
        assert len({mean for _, mean, _ in together}) == 1, together
        assert len({values for _, _, values in together if values}) <= 1, together
    # eata, eata+debias, cotta, cotta+debias and debias.
    assert repeated == 5


def test_anchors_are_marked_as_of_other_protocols():
    anchors = {table.id: table for table in TABLES.values() if not table.of_paper}
    for table in anchors.values():
        assert "2403.01344" not in table.source
        assert table.domains == CORRUPTIONS
        assert table.benchmark.note.startswith("Another protocol")
    errors = {
        table.id: {row.label: round(100 - row.mean, 2) for row in table.rows}
        for table in anchors.values()
    }
    assert errors == {
        "anchors-imagenet": {"Source": 82.0, "BN-1": 68.6, "RoTTA": 67.3},
        "anchors-cifar100": {"Source": 46.4, "BN-1": 35.4, "RoTTA": 34.8},
        "recurring-imagenet": {"Source": 82.0, "RoTTA": 87.9, "PeTTA": 60.5},
        "recurring-cifar100": {"Source": 46.5, "RoTTA": 61.4, "PeTTA": 35.1},
    }
    assert anchors["anchors-cifar100"].benchmark.batch_size == 200
    assert anchors["anchors-imagenet"].benchmark.images == 5_000
    assert parse(anchors["recurring-cifar100"].stream).visits == 20
    assert anchors["recurring-imagenet"].row("rdumb") is None


def test_what_the_figures_vary():
    assert FIGURES["batch-size"].batch_sizes == (128, 64, 32, 16, 8, 4)
    assert FIGURES["batch-size"].methods == ("eata", "eata+debias")
    alphas = [compose(method).methods[-1].alpha for method in FIGURES["alpha"].methods[1:]]
    assert alphas == [0.9, 0.96, 0.99, 0.996, 0.999]
    assert all(
        figure.batch_sizes == (64,) for figure in FIGURES.values() if figure.id != "batch-size"
    )
    assert not FIGURES.keys() & TABLES.keys()


def test_the_file_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _file.cache_clear()
    assert published() == TABLES
