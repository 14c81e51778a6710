"""Runs watch their health: what is recorded of it, and what it is calibrated on."""

import shutil

import numpy as np
import pytest
import torch
from polars.testing import assert_frame_equal
from short_runs import Killed, Killer, lasting
from short_runs import plan as short_plan

import holdfast
from holdfast.bench import materials as materials_module
from holdfast.bench.materials import Materials
from holdfast.bench.metrics.seen import OF_HEALTH
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.data.glyphs import Glyphs
from holdfast.engine import adapter as adapter_module
from holdfast.source.source import Source
from holdfast.util import files

HEADLESS = """
from torch import nn
from holdfast.data import glyphs

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = glyphs.model()

    def forward(self, images):
        return self.inner(images).abs()

def make():
    return Net()
"""


def plan(method, **others):
    return short_plan(method, **{"health": True, **others})


@pytest.fixture
def calibrations(monkeypatch):
    """Counts them."""
    made, original = [], adapter_module.calibrate

    def counted(*given):
        made.append(given)
        return original(*given)

    monkeypatch.setattr(adapter_module, "calibrate", counted)
    return made


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Materials of few images, in a folder of their own."""
    monkeypatch.setattr(materials_module, "DRAWN_IMAGES", 160)
    return Materials(tmp_path / "cache")


@pytest.mark.parametrize("method", ["tent", "tent+debias"])
def test_rows_hold_what_the_adapter_tells(method, materials, tmp_path):
    run = plan(method, limit=96, batch=32, every=2, estimator="doc")
    rows = perform(run, materials, tmp_path).rows
    options = holdfast.HealthOptions("doc", every=2)
    adapter = holdfast.adapt(
        materials.model(run), method, source=materials.source(run), health=options
    )
    for batch, row in zip(materials.flow(run), rows.iter_rows(named=True), strict=True):
        adapter(batch.images)
        health = adapter.health
        assert health.estimator == "doc"
        expected = (health.drift, health.accuracy, *health.interval, health.frozen_accuracy)
        found = [row[name] for name in OF_HEALTH]
        assert found == [*expected, health.state, health.alarm]
        assert row["fallback"] is False
    assert rows["estimated"][0] == rows["estimated"][1] != rows["estimated"][2]


def test_without_health_a_run_is_the_same_but_for_what_is_told(materials, tmp_path):
    kinds = {}
    for health in (True, False):
        run = plan("tent+debias", health=health, batch=32)
        kinds[health] = lasting(perform(run, materials, tmp_path).rows)
        hashes = materials.hashes(run)
        assert ("health" in hashes) is health
    told = ["drift", "estimated", "estimated_low", "estimated_high", "estimated_frozen"]
    assert kinds[True]["estimated"].null_count() < kinds[True].height
    assert all(kinds[False][name].null_count() == kinds[False].height for name in told)
    aside = [*told, "state", "alarm"]
    assert_frame_equal(kinds[True].drop(aside), kinds[False].drop(aside), check_exact=True)


@pytest.mark.parametrize("guard", ["alarm", "fallback"])
def test_a_run_that_was_stopped_tells_the_same_health(guard, materials, tmp_path):
    # So fast that adapting soon does harm.
    stream = "continual(order='brightness,original',clean=false,limit=320)"
    given = {"stream": stream, "limit": None, "batch": 32}
    run = plan("tent(lr=10)", **given, guard=guard, every=1)
    whole = perform(run, materials, tmp_path / "whole")
    for moment in (2, 6, 9):
        with pytest.raises(Killed):
            perform(run, materials, tmp_path / "cut", resume=True, tell=Killer(moment), every=0)
    cut = perform(run, materials, tmp_path / "cut", resume=True)
    assert_frame_equal(lasting(whole.rows), lasting(cut.rows), check_exact=True)
    assert whole.rows["estimated"].null_count() == 0
    if guard == "fallback":
        assert whole.rows["fallback"].any()
        assert whole.manifest.metrics["fallback"] == whole.rows["fallback"].mean()


def test_calibrations_are_kept_for_other_runs_and_processes(own, calibrations, tmp_path):
    perform(plan("bn"), own, tmp_path)
    perform(plan("tent", seed=1), own, tmp_path)
    perform(plan("bn", seed=2), Materials(own.folder), tmp_path)
    assert len(calibrations) == 1
    perform(plan("frozen"), Materials(own.folder), tmp_path)
    assert len(calibrations) == 2


def test_two_processes_do_not_undo_each_other_s_work(own, calibrations, tmp_path):
    other = Materials(own.folder)
    perform(plan("bn"), own, tmp_path)
    perform(plan("t3a"), other, tmp_path)  # opens what the first wrote
    perform(plan("frozen"), own, tmp_path)
    perform(plan("tent"), other, tmp_path)
    (path,) = [own._source_path(plan("bn"))]
    _, tensors = files.read(path, "a source")
    kinds = {name.split("/")[2] for name in tensors if name.startswith("health/")}
    assert len(calibrations) == len(kinds) == 3
    # One that has no use for it leaves it there.
    perform(plan("debias", health=False), own, tmp_path)
    perform(plan("debias"), own, tmp_path)
    full = own._source_path(plan("debias"))
    before = files.read(full, "a source")[1].keys()
    perform(plan("debias", health=False, seed=1), Materials(own.folder), tmp_path)
    assert files.read(full, "a source")[1].keys() == before
    assert any(name.startswith("health/") for name in before)


def test_a_light_source_is_not_taken_for_a_full_one(own, tmp_path):
    light, full = (own.source(plan(method)) for method in ("tent", "debias"))
    assert int(light.counts.sum()) == materials_module.HEALTH_SOURCE == 128
    assert int(full.counts.sum()) == 160
    assert own._source_path(plan("tent")) != own._source_path(plan("debias"))
    assert own.source_hash(plan("tent")) is None


@pytest.fixture
def unknown(tmp_path):
    """A clean set of which nothing is known but what it holds."""
    path, drawn = tmp_path / "mine.npz", Glyphs("test", 150)
    pixels = drawn.raw(range(150)).permute(0, 2, 3, 1).numpy()
    np.savez(path, images=pixels, labels=np.asarray(drawn.labels))
    stream = "continual(order=fog,clean=false,limit=128)"
    return {"data": str(path), "model": "glyphs", "stream": stream, "batch": 32}


def test_where_training_images_are_not_known_health_is_off(unknown, own, tmp_path):
    rows = perform(plan("bn", **unknown), own, tmp_path).rows
    assert rows["estimated"].null_count() == rows.height
    assert set(rows["state"]) <= {"stable", "adapting"}
    with pytest.raises(ValueError, match="guard='fallback' compares the adapter with the source"):
        perform(plan("bn", **unknown, guard="fallback"), own, tmp_path)
    # Named, they are.
    run = plan("bn", **unknown, source=unknown["data"])
    assert perform(run, own, tmp_path).rows["estimated"].null_count() == 0
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        perform(plan("bn", **unknown, source="nowhere"), own, tmp_path)


def test_of_a_model_without_a_head_that_is_seen_nothing_is_estimated(own, tmp_path, monkeypatch):
    """It ran before there was health, and does so still."""
    (tmp_path / "headless.py").write_text(HEADLESS)
    monkeypatch.syspath_prepend(tmp_path)
    run = plan("bn", model="headless:make", batch=32)
    assert own.health_hash(run) is None
    assert perform(run, own, tmp_path).rows["estimated"].null_count() == 2


def test_a_saved_source_that_holds_calibrations_serves(unknown, own, tmp_path):
    with own.preparing(plan("bn")):
        source = own.source(plan("bn"))
        holdfast.adapt(own.model(plan("bn")), "bn", source=source)
    source.save(tmp_path / "mine.safetensors")
    given = {**unknown, "source": str(tmp_path / "mine.safetensors")}
    assert perform(plan("tent", **given), own, tmp_path).rows["estimated"].null_count() == 0
    # It holds none of answers of another kind.
    with pytest.warns(UserWarning, match="of another kind.*--validation"):
        rows = perform(plan("frozen", **given), own, tmp_path).rows
    assert rows["estimated"].null_count() == 1
    off = perform(plan("tent", **given, health=False), own, tmp_path).rows
    assert off["estimated"].null_count() == off.height


@pytest.fixture
def validation(tmp_path):
    """Half of them are black: the model is right half as often."""
    path, drawn = tmp_path / "validation.npz", Glyphs("train", 320)
    pixels = drawn.raw(range(160, 320)).permute(0, 2, 3, 1).numpy().copy()
    pixels[::2] = 0
    np.savez(path, images=pixels, labels=np.asarray(drawn.labels)[160:320])
    return str(path)


def clean_accuracy(run, materials):
    """Of the source model, on what estimates are calibrated on."""
    adapter = holdfast.adapt(materials.model(run), run.method, source=materials.source(run))
    rows = adapter._state.monitor.calibration
    return float(rows.rows[(rows.groups == 0) & ~rows.few, 1].mean())


def test_estimates_are_calibrated_on_validation_images_where_there_are_any(own, validation):
    plain, named = plan("frozen"), plan("frozen", validation=validation)
    assert clean_accuracy(plain, own) > 0.8
    assert clean_accuracy(named, own) == pytest.approx(clean_accuracy(plain, own) / 2, abs=0.08)
    assert own.health_hash(plain) != own.health_hash(named)
    # All else is of the source's images.
    sources = own.source(plain), own.source(named)
    assert torch.equal(*(source.prototypes for source in sources))
    assert own._source_path(plain) != own._source_path(named)


def test_what_a_saved_source_was_calibrated_on_gives_way_to_them(own, validation, tmp_path):
    run = plan("frozen")
    accuracy = clean_accuracy(run, own)
    own.source(run).save(tmp_path / "mine.safetensors")
    given = {"source": str(tmp_path / "mine.safetensors")}
    assert clean_accuracy(plan("frozen", **given), own) == accuracy
    named = plan("frozen", **given, validation=validation)
    assert clean_accuracy(named, own) < 0.6
    assert own.health_hash(named) != own.health_hash(plan("frozen", **given))
    # The file is as it was.
    assert clean_accuracy(plan("frozen", **given), Materials(tmp_path / "anew")) == accuracy


def test_validation_images_that_are_the_ones_shown_are_refused(unknown, own, tmp_path):
    """Or those of the source; whatever they are called."""
    with pytest.raises(ValueError, match="--validation glyphs has the very images"):
        own.source(plan("bn", validation="glyphs"))
    with pytest.raises(ValueError, match="has the very images that are shown"):
        own.source(plan("bn", **unknown, validation=unknown["data"]))
    copied = shutil.copy(unknown["data"], tmp_path / "copy.npz")
    with pytest.raises(ValueError, match="has the very images that are shown"):
        own.source(plan("bn", **unknown, validation=str(copied)))
    with pytest.raises(ValueError, match="has the images of the source: leave it out"):
        own.source(plan("bn", source=unknown["data"], validation=str(copied)))


def test_images_that_cannot_be_calibrated_on_are_refused(own, tmp_path):
    def images(count, side, classes):
        path = tmp_path / f"{count}-{side}-{classes}.npz"
        pixels = np.zeros((count, side, side, 3), np.uint8)
        np.savez(path, images=pixels, labels=np.arange(count) % classes)
        return str(path)

    with pytest.raises(ValueError, match=r"has 63 images.*give 64 at least"):
        own.health_hash(plan("bn", validation=images(63, 32, 50)))
    with pytest.raises(ValueError, match=r"another size .*\(3×16×16 and 3×32×32\).*--no-health"):
        own.health_hash(plan("bn", validation=images(64, 16, 50)))
    with pytest.raises(ValueError, match=r"--validation .* a label 50, .* knows 50 classes"):
        own.health_hash(plan("bn", validation=images(64, 32, 51)))
    # A source's own images are calibrated on where there are no others.
    source = images(64, 16, 50)
    with pytest.raises(ValueError, match=r"--source .* another size"):
        own.health_hash(plan("bn", source=source))
    with pytest.raises(ValueError, match=r"--source .* another size"):  # drift goes by these
        own.health_hash(plan("bn", source=source, validation=images(64, 32, 50)))
    assert own.health_hash(plan("bn", source=source, health=False)) is None


def test_a_calibration_that_another_process_makes_meanwhile_is_not_the_files_own(
    own, validation, tmp_path, monkeypatch
):
    accuracy = clean_accuracy(plan("frozen"), own)
    own.source(plan("frozen")).save(tmp_path / "mine.safetensors")
    run = plan("frozen", source=str(tmp_path / "mine.safetensors"), validation=validation)
    with own.preparing(run):
        clean_accuracy(run, own)
    kept, aside = own._source_path(run), tmp_path / "aside"
    kept.rename(aside)
    load = Source.load

    def slowly(path, *given, **options):
        loaded = load(path, *given, **options)
        aside.rename(kept)
        return loaded

    monkeypatch.setattr(Source, "load", slowly)
    assert clean_accuracy(run, Materials(own.folder)) < accuracy - 0.2


def test_a_saved_source_that_lacks_what_health_goes_by_says_so(own, validation, tmp_path):
    own.source(plan("frozen")).save(tmp_path / "mine.safetensors")
    run = plan("bn", source=str(tmp_path / "mine.safetensors"), validation=validation)
    with pytest.raises(ValueError, match=r"does not hold, .*--source in place of the file"):
        perform(run, own, tmp_path)


def test_a_saved_sources_new_calibration_is_made_once(own, validation, tmp_path, calibrations):
    clean_accuracy(plan("frozen"), own)
    own.source(plan("frozen")).save(tmp_path / "mine.safetensors")
    run = plan("frozen", source=str(tmp_path / "mine.safetensors"), validation=validation)
    for number in range(2):
        materials = Materials(own.folder)  # as in another process
        perform(run, materials, tmp_path / str(number))
        assert len(calibrations) == 2  # with the source's own


def test_validation_images_do_not_stand_in_for_the_source(unknown, own, validation):
    with pytest.raises(ValueError, match="nothing is known of what the model was trained on"):
        own.source(plan("bn", **unknown, validation=validation))


def test_what_does_not_go_together_is_said():
    with pytest.raises(ValueError, match="--validation is for estimates of health"):
        Run.of("bn", validation="images.npz", health=False)
    with pytest.raises(ValueError, match="--guard fallback goes by health"):
        Run.of("bn", guard="fallback", health=False)
    with pytest.raises(ValueError, match="level is a chance between 0 and 1"):
        Run.of("bn", level=2.0)
    with pytest.raises(ValueError, match="every is a number of batches"):
        Run.of("bn", every=0)
