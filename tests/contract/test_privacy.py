"""The laws on what a state file holds of the images of a stream."""

import warnings

import pytest
import torch
from compositions import in_episodes
from running import KINDS, LAW, load, run
from safetensors import safe_open
from safetensors.torch import load_file
from toys import assert_same_state, state_of, stream

import holdfast
from holdfast.explain.card import card

IMAGE = (3, 8, 8)


def images_in(path):
    """Names of tensors that have the shape of an image, or hold some."""
    tensors = load_file(path)
    return [name for name, tensor in tensors.items() if tuple(tensor.shape[-3:]) == IMAGE]


def contents(path):
    """The header and every tensor's bytes; in which order a file has the header's two entries is
    left to chance."""
    with safe_open(path, "pt") as file:
        return file.metadata(), {n: t.numpy().tobytes() for n, t in load_file(path).items()}


@LAW
def test_a_state_file_holds_images_only_where_the_card_says_so(adapt, spec, tmp_path):
    adapter = adapt(spec, rollback=True)
    run(adapter, stream(KINDS))
    adapter.save(tmp_path / "state")
    assert bool(images_in(tmp_path / "state")) == card(spec).saves.startswith("images")


@LAW
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.filterwarnings("ignore:.*the stream has batches of")
def test_saved_without_images_it_loads_and_begins_them_anew(
    adapt, net, source, spec, window, tmp_path
):
    if window and in_episodes(spec):
        pytest.skip("a window has no use where each image is looked at by itself")
    adapter = adapt(spec, window=window, rollback=True)
    run(adapter, stream(KINDS))
    paths = with_images, without = tmp_path / "with", tmp_path / "without"
    for path, images in zip(paths, (True, False), strict=True):
        adapter.save(path, images=images)
    assert images_in(without) == []
    kept = adapter._state.extra_state()
    if not kept:
        assert contents(with_images) == contents(without)
        return
    with pytest.warns(UserWarning, match="saved without images: .* begin empty"):
        loaded = load(without, net, spec, source)
    assert loaded._state.extra_state() == {}
    expected = {name: tensor for name, tensor in state_of(adapter).items() if name not in kept}
    assert_same_state(state_of(loaded), expected)
    run(loaded, stream(KINDS, seed=2))
    assert loaded._state.extra_state().keys() == kept.keys()


def test_the_file_says_what_was_left_out(adapt, net, tmp_path):
    adapter = adapt("rotta(capacity=12,every=20)", window=4)
    run(adapter, stream(KINDS))
    adapter.save(tmp_path / "state", images=False)
    with pytest.warns(UserWarning, match="memory and window of rotta begin"):
        holdfast.load(tmp_path / "state", net)


def test_what_was_loaded_without_images_saves_as_it_is(adapt, net, tmp_path):
    """Nothing is left out of a file whose window was empty, and loading it says nothing."""
    adapter = adapt("tent", window=4)
    adapter.save(tmp_path / "fresh", images=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = holdfast.load(tmp_path / "fresh", net)
    assert torch.equal(loaded(stream(("all",))[0]), adapter(stream(("all",))[0]))


@pytest.mark.parametrize("spec", ["t3a(keep=3)", "tsd(keep=3)"])
def test_a_bank_holds_features_of_single_images_as_its_card_says(adapt, spec, tmp_path):
    adapter, images = adapt(spec), stream(("all",))[0]
    features = torch.nn.functional.normalize(adapter.features(images), dim=1)
    adapter(images)
    adapter.save(tmp_path / "state", images=False)
    (bank,) = (t for n, t in load_file(tmp_path / "state").items() if n.endswith("directions"))
    apart = torch.cdist(features, bank.flatten(0, 1)).amin(1)
    assert (apart < 1e-5).any()
    assert card(spec).saves.startswith("no images, but features")
    assert card("eata+debias").saves.startswith("no images and no features")
