"""Answers that are no log-probabilities: what a run records of them, and what tables say."""

from dataclasses import replace

import pytest
import torch
from made import make_run
from short_runs import Killed, Killer

import holdfast
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import Seen
from holdfast.bench.plan import Run
from holdfast.bench.run import perform, show
from holdfast.bench.store import RunFolder
from holdfast.cli.main import main
from holdfast.data import glyphs
from holdfast.data.streams import parse
from holdfast.report.page import Report, page
from holdfast.report.provenance import facts
from holdfast.report.texts import latex, markdown
from holdfast.results.comparison import compare
from holdfast.results.gather import gather
from holdfast.results.tables import notes, run_document

STREAM = "continual(order='fog,contrast',clean=false)"
ROID = "roid(augment=flip)"
GIVEN = {"stream": STREAM, "limit": 64, "batch": 32}


def batches_of(seed=0):
    stream = parse("continual(order='fog,contrast',clean=false,limit=64,batch=32)")
    return list(stream.over(glyphs.benchmark(), seed=seed))


@pytest.mark.parametrize("spec", [ROID, "bn+prior"])
def test_a_run_records_labels_that_leave_and_probabilities_from_before(materials, tmp_path, spec):
    folder = perform(Run.of(spec, **GIVEN), materials, tmp_path)
    adapter = holdfast.adapt(glyphs.model(), spec)
    rows = list(folder.rows.iter_rows(named=True))
    differ = False
    for batch, row in zip(batches_of(), rows, strict=True):
        scores = adapter(batch.images)
        p = adapter.last.uncorrected.softmax(1)
        assert row["predicted"] == scores.argmax(1).tolist()
        assert row["confidence"] == pytest.approx(p.amax(1).tolist(), rel=1e-5)
        assert row["entropy"] == pytest.approx(
            torch.special.entr(p).sum(1).tolist(), rel=1e-4, abs=1e-6
        )
        # Far from what the scores would say, had they been taken for logits.
        assert abs(sum(row["confidence"]) / 32 - float(scores.softmax(1).amax(1).mean())) > 0.2
        differ |= p.argmax(1).tolist() != row["predicted"]
    assert differ
    assert folder.manifest.uncorrected


def test_calibration_is_that_of_the_host(materials, tmp_path):
    """bn+prior has bn's confidences, so that its error of calibration differs by accuracy alone."""
    plain, refined = (
        perform(Run.of(spec, **GIVEN), materials, tmp_path) for spec in ("bn", "bn+prior")
    )
    for name in ("confidence", "entropy"):
        assert plain.rows[name].to_list() == refined.rows[name].to_list()
    apart = abs(plain.manifest.metrics["ece_15"] - refined.manifest.metrics["ece_15"])
    assert apart < 20
    assert not plain.manifest.uncorrected and refined.manifest.uncorrected


def test_a_run_that_was_killed_records_the_same(materials, tmp_path):
    run = Run.of(ROID, **GIVEN)
    whole = perform(run, materials, tmp_path / "whole")
    with pytest.raises(Killed):
        perform(run, materials, tmp_path, tell=Killer(2), every=0)
    pieces = perform(run, materials, tmp_path, resume=True)
    for name in ("predicted", "confidence", "entropy"):
        assert pieces.rows[name].to_list() == whole.rows[name].to_list()
    same = ("ece_15", "mean_accuracy")
    assert all(pieces.manifest.metrics[n] == whole.manifest.metrics[n] for n in same)


def test_a_batch_that_was_missed_is_recorded_so_too():
    adapter = holdfast.adapt(glyphs.model(), ROID)
    first, second, *_ = batches_of()
    adapter(first.images)
    expected = adapter.answer(second.images)
    seen = show(adapter, replace(second, missed=True), lambda: 0.0)
    p = expected.uncorrected.softmax(1)
    assert seen.missed
    assert seen.predicted.tolist() == expected.logits.argmax(1).tolist()
    assert seen.confidence.tolist() == pytest.approx(p.amax(1).tolist(), rel=1e-5)


def test_a_loop_of_ones_own_hands_over_last():
    logits, before = torch.tensor([[0.1, 0.2], [0.3, 0.1]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]])
    last = holdfast.Last(uncorrected=before)
    recorder = Recorder(2)
    seen = recorder.record(logits, [1, 0], last=last)
    assert seen.predicted.tolist() == [1, 0]
    assert seen.confidence.tolist() == pytest.approx(before.softmax(1).amax(1).tolist())
    with pytest.raises(ValueError, match=r"shape \(2, 2\), and \(3, 2\) before"):
        Seen.of(logits, [1, 0], "fog", batch=0, uncorrected=torch.zeros(3, 2))
    with pytest.raises(ValueError, match="the same batch"):
        recorder.record(logits[:1], [1], last=last)


# What is said of it.

SAYS = "what leaves are corrected scores, whose softmax are no probabilities"


def test_tables_and_pages_say_whose_scores_are_none(tmp_path):
    make_run(tmp_path, "roid", 70)
    make_run(tmp_path, "tent+prior", 60)
    make_run(tmp_path, "tent", 50)
    gathered = gather(tmp_path)
    (comparison,) = compare(gathered.runs)
    (note,) = notes(comparison.groups)
    named, _, said = note.partition(": ")
    assert set(named.split(" and ")) == {"roid", "tent+prior"} and said.startswith(SAYS)
    assert "before the correction" in said
    report = Report(gathered)
    for text in (page(report), markdown(report), latex(report)):
        assert SAYS in " ".join(text.split())
    told = facts(gathered.runs)["confidence, entropy and calibration"]
    assert "roid: of the logits before its correction" in told and "tent:" not in told
    folders = [RunFolder(run.path) for run in gathered.runs]
    assert any(SAYS in block for block in run_document(folders) if isinstance(block, str))


def test_nothing_is_said_where_probabilities_are_meant(tmp_path):
    make_run(tmp_path, "roid(correct=false)", 70)
    make_run(tmp_path, "tent", 50)
    gathered = gather(tmp_path)
    (comparison,) = compare(gathered.runs)
    assert list(notes(comparison.groups)) == []
    assert "confidence, entropy and calibration" not in facts(gathered.runs)
    assert SAYS not in page(Report(gathered))


def test_the_command_line_says_it_under_its_table(tmp_path, capsys):
    command = ["run", "--method", "bn+prior", "--limit", "32", "--batch", "32", "--stream", STREAM]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert SAYS in " ".join(capsys.readouterr().out.split())
