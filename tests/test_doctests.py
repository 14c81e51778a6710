"""The examples in public docstrings are true."""

import doctest

import pytest

import holdfast
from holdfast.bench import Recorder
from holdfast.data.streams import parse
from holdfast.exporting import export

PUBLIC = {
    "adapt": holdfast.adapt,
    "load": holdfast.load,
    "Source.from_loader": holdfast.Source.from_loader,
    "normalized": holdfast.normalized,
    "compose": holdfast.compose,
    "setting": holdfast.setting,
    "methods": holdfast.methods,
    "doctor": holdfast.doctor,
    "Fleet": holdfast.Fleet,
    "rehearse": holdfast.rehearse,
    "tune_cpu": holdfast.tune_cpu,
    "export": export,
    "Recorder": Recorder,
    "streams.parse": parse,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_in_docstrings_are_true(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # some write files
    (test,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={})
    assert test.examples
    result = doctest.DocTestRunner().run(test)
    assert not result.failed, capsys.readouterr().out
