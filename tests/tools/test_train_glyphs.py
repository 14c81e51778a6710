"""The shipped network can be trained anew."""

import sys

import train_glyphs as training

from holdfast.data import glyphs
from holdfast.models import glyphs as embedded


def test_training_writes_what_the_model_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EPOCHS", 2)
    monkeypatch.setattr(training, "BATCH", 64)
    monkeypatch.setitem(glyphs.SIZES, "train", 640)
    monkeypatch.setitem(glyphs.SIZES, "test", 100)
    accuracy = training.train(tmp_path / "weights.safetensors")
    monkeypatch.setattr(embedded, "WEIGHTS", tmp_path / "weights.safetensors")
    assert training.accuracy(glyphs.model()) == accuracy > 0


def test_training_leaves_what_ships_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", lambda target: target.write_text("new") / 6)
    monkeypatch.setattr(sys, "argv", ["train_glyphs.py"])
    training.main()
    assert (tmp_path / "glyphs.safetensors").read_text() == "new"
    assert "50.00%; weights in glyphs.safetensors" in capsys.readouterr().out
