"""States and sources that version 0.1.0 wrote load, and go on as they did there."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toys import ToyNet, assert_same_state, source_batches, state_of, stream

import holdfast

FOLDER = Path(__file__).parents[1] / "fixtures" / "0.1.0"
OTHERS = {"net", "source", "logits"}
STATES = sorted(path.stem for path in FOLDER.glob("*.safetensors") if path.stem not in OTHERS)


def net():
    model = ToyNet()
    model.load_state_dict(load_file(FOLDER / "net.safetensors"))
    return model.eval()


def later():
    return stream(("some", "all", "some"), seed=2, last=5)


@pytest.mark.parametrize("name", STATES)
def test_a_state_loads_and_goes_on(name, tmp_path):
    path = FOLDER / f"{name}.safetensors"
    adapter = holdfast.load(path, net())
    saved = load_file(path)
    state = state_of(adapter)
    # Every tensor that there is now has the value that the file has under its name; what has come
    # since only observes, and begins anew.
    since = {key: state.pop(key) for key in list(state) if key.startswith(("health/", "fallback/"))}
    assert_same_state(state, {key: saved[key] for key in state})
    adapter.save(tmp_path / "again")
    assert load_file(tmp_path / "again").keys() == saved.keys() | since.keys()
    logits = load_file(FOLDER / "logits.safetensors")
    for index, images in enumerate(later()):
        # Processors differ in rounding: on one and the same these are equal.
        torch.testing.assert_close(adapter(images), logits[f"{name}/{index}"])


def test_a_source_loads_and_serves():
    """By what it holds alone: it is given no loader."""
    source = holdfast.Source.load(FOLDER / "source.safetensors")
    model = net()
    made = holdfast.Source.from_loader(model, source_batches())
    for spec in ("eata+debias", "ttac"):
        one = holdfast.adapt(model, spec, source=source)
        other = holdfast.adapt(model, spec, source=made)
        for images in later():
            torch.testing.assert_close(one(images), other(images))
