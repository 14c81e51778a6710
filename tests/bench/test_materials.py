"""What runs share is opened once."""

import pytest

from holdfast.bench import materials as materials_module
from holdfast.bench import opened
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.data.streams import Stream


def count_calls(monkeypatch, owner, name):
    calls, original = [], getattr(owner, name)

    def counted(*given, **named):
        calls.append(given)
        return original(*given, **named)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_run_builds_its_stream_once_and_reads_its_data_s_fingerprint_once(tmp_path, monkeypatch):
    streams = count_calls(monkeypatch, Stream, "over")
    prints = count_calls(monkeypatch, opened, "data_fingerprint")
    materials = Materials(tmp_path / "cache")
    perform(Run.of("bn", domains="fog", limit=8), materials, tmp_path)
    assert (len(streams), len(prints)) == (1, 1)
    # Another seed is another stream over the same data.
    perform(Run.of("bn", domains="fog", limit=8, seed=1), materials, tmp_path)
    assert (len(streams), len(prints)) == (2, 1)


def test_the_fingerprint_of_images_that_are_kept_is_that_of_the_images(tmp_path, monkeypatch):
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 64)
    materials, run = Materials(tmp_path), Run.of("debias", domains="fog", limit=8)
    data, source = materials.data(run), materials._source_set(run)
    assert materials.data_hash(run) == materials_module.data_fingerprint(data)
    assert materials._hash_of(source) == materials_module.data_fingerprint(source)


def test_a_normalisation_of_too_few_values_is_what_is_wrong(tmp_path):
    run = Run.of("bn", model="resnet20", mean="0.5,0.5", std="0.2,0.2", domains="fog", limit=8)
    with pytest.raises(ValueError, match=r"has 2 values.*give mean and std 3 values each, or one"):
        Materials(tmp_path).classes(run)
