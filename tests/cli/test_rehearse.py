"""`holdfast rehearse` on the embedded benchmark, for a person who is in a hurry."""

import json
import signal

import pytest
from rehearsing import ending, time_alike

import holdfast
from holdfast.bench import materials as materials_module
from holdfast.cli.main import main
from holdfast.data import glyphs
from holdfast.rehearsal import session
from holdfast.rehearsal.perform import evaluate

SHORT = ["rehearse", "--images", "300", "--batch", "16", "--minutes", "0.03", "--threads", "1"]
SHORT += ["-m", "tent(lr=0.001)", "--stream", "continual", "--stream", "correlated"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    time_alike(monkeypatch)
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 640)


@pytest.fixture
def poisoned(monkeypatch):
    """Whoever draws an image of the test split, or asks for its label, is caught."""
    compose, labels = glyphs.compose, glyphs.labels

    def caught(split):
        assert split == "train", "a rehearsal looked at the test split"

    def compose_caught(indices, known, split, seed):
        caught(split)
        return compose(indices, known, split, seed)

    def labels_caught(split, indices):
        caught(split)
        return labels(split, indices)

    monkeypatch.setattr(glyphs, "compose", compose_caught)
    monkeypatch.setattr(glyphs, "labels", labels_caught)


def test_it_ends_with_a_sentence_tables_and_a_page_and_reads_no_test_label(
    tmp_path, capsys, poisoned
):
    with pytest.raises(AssertionError, match="test split"):
        glyphs.Glyphs("test", 1)
    assert main([*SHORT, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    stored = json.loads((tmp_path / "rehearsal.json").read_text())
    assert printed.out.startswith(stored["sentence"])
    assert "over frozen" in printed.out and "Why not the others" in printed.out
    assert "Rung 1 of 1: 1 method beside frozen and bn" in printed.err
    page = (tmp_path / "rehearsal.html").read_text()
    assert "tent(<wbr>lr=0.001)" in page and "holdfast" in page
    source = holdfast.Source.load(tmp_path / "source.safetensors")
    holdfast.adapt(glyphs.model(), stored["method"], source=source)


def test_ctrl_c_leaves_what_resume_finishes(tmp_path, capsys, monkeypatch):
    # A name that nothing lies under: the data themselves are not opened at all.
    named = [*SHORT, "--data", "nowhere-c", "--model", "glyphs", "--source", "glyphs"]
    command = [*named, "--out", str(tmp_path / "stopped")]
    done = []

    def stopped(adapter, shown, tell):
        done.append(adapter)
        if len(done) == 3:
            signal.raise_signal(signal.SIGINT)
        return evaluate(adapter, shown, tell)

    with monkeypatch.context() as patch:
        patch.setattr(session, "evaluate", stopped)
        assert main(command) == 130
    assert "stopped" in capsys.readouterr().err
    assert main(command) == 2
    assert "pass --resume" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    resumed = capsys.readouterr().out.splitlines()
    assert main([*named, "--out", str(tmp_path / "whole")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == resumed[0]
    assert ending(tmp_path / "stopped") == ending(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-m", "eatta"], "Did you mean"),
        (["--stream", "endless"], "cannot show endless"),
        (["--minutes", "0"], "above 0"),
        (["--images", "50"], "expected"),
        (["--source", "nowhere"], "There is no set, folder or .npz file nowhere."),
        (["--data", "cifar100-c"], "--model"),
        (["--threads", "0"], "at least 1"),
        (["--severity", "7"], "from 1 to 5"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(options, expected, tmp_path, capsys):
    out = tmp_path / "rehearsal"
    assert main([*SHORT, "--out", str(out), *options]) == 2
    assert expected in capsys.readouterr().err
    assert [path.name for path in out.glob("*")] in ([], ["cache"])
