"""What runs share is opened once."""

import numpy as np
import pytest
from PIL import Image

from holdfast.bench import materials as materials_module
from holdfast.bench import shown as shown_module
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.data.streams import Stream
from holdfast.report.provenance import facts
from holdfast.results.stored import StoredRun


def count_calls(monkeypatch, owner, name):
    calls, original = [], getattr(owner, name)

    def counted(*given, **named):
        calls.append(given)
        return original(*given, **named)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_run_builds_its_stream_once_and_reads_its_data_s_fingerprint_once(tmp_path, monkeypatch):
    streams = count_calls(monkeypatch, Stream, "over")
    of_data = count_calls(monkeypatch, shown_module, "data_fingerprint")
    of_source = count_calls(monkeypatch, materials_module, "data_fingerprint")
    materials = Materials(tmp_path / "cache")
    perform(Run.of("bn", domains="fog", limit=8), materials, tmp_path)
    # Of the data, and of what health goes by.
    assert (len(streams), len(of_data), len(of_source)) == (1, 1, 1)
    # Another seed is another stream over the same data.
    perform(Run.of("bn", domains="fog", limit=8, seed=1), materials, tmp_path)
    assert (len(streams), len(of_data), len(of_source)) == (2, 1, 1)


def test_the_fingerprint_of_images_that_are_kept_is_that_of_the_images(tmp_path, monkeypatch):
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 64)
    materials, run = Materials(tmp_path), Run.of("debias", domains="fog", limit=8)
    data, source = materials.data(run), materials.source_images(run)
    assert materials.data_hash(run) == materials_module.data_fingerprint(data)
    assert materials._hash_of(source) == materials_module.data_fingerprint(source)


def test_styles_are_of_source_batches_as_large_as_the_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 64)
    materials = Materials(tmp_path)
    sizes, hashes = [], set()
    for method in ("tent+reservoir", "tent+debias"):
        for batch in (16, 64):
            run = Run.of(method, domains="fog", limit=8, batch=batch, health=False)
            sizes.append(materials.source(run).batch_size)
            hashes.add(materials.source_hash(run))
    assert sizes == [16, 64, 64, 64] and len(hashes) == 2


@pytest.fixture
def photos(tmp_path):
    """A folder of two classes, of images that differ in size."""
    for name, number in (("cat", 0), ("dog", 1)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(4):
            pixels = np.full((40 + k, 60, 3), 50 * k + number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{k}.png")
    return str(tmp_path / "photos")


def test_images_of_folders_come_in_the_size_that_was_asked_for(photos, tmp_path):
    materials = Materials(tmp_path / "cache")
    given = {"data": photos, "source": photos, "model": "glyphs", "domains": "fog", "limit": 4}
    for size, side in ((None, 224), (32, 32)):
        run = Run.of("debias", **given, size=size)
        assert next(iter(materials.flow(run))).images.shape[-2:] == (side, side)
        assert materials.source_images(run).image(0).shape[-2:] == (side, side)
    folder = perform(Run.of("bn", **given, size=32), materials, tmp_path)
    assert facts([StoredRun.of(folder)])["size"] == "32"
    with pytest.raises(ValueError, match="size is a whole number from 1 on, not 0"):
        materials.data(Run.of("bn", data=photos, model="glyphs", size=0))
    with pytest.raises(ValueError, match=r"--size 48 would not be used, since glyphs-c.* 32×32"):
        materials.data(Run.of("bn", size=48))


def test_a_normalisation_of_too_few_values_is_what_is_wrong(tmp_path):
    run = Run.of("bn", model="resnet20", mean="0.5,0.5", std="0.2,0.2", domains="fog", limit=8)
    with pytest.raises(ValueError, match=r"has 2 values.*give mean and std 3 values each, or one"):
        Materials(tmp_path).classes(run)
