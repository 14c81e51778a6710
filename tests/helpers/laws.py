"""Laws that every pair of a host and a plug-in is asked each time, and all else too."""

import re

import pytest
import torch
from compositions import predicts_after, resets
from running import assert_equal, run
from toys import assert_same_state, state_of

import holdfast


def neutral_is_not_there(neutral, batches, expected, state):
    """A plug-in with neutral settings is its host, which gave this and ended in that state."""
    assert_equal(run(neutral, batches), expected)
    assert_same_state(state_of(neutral), state)


def loaded_goes_on_as_if_never_stopped(loaded, adapter, later):
    assert_same_state(state_of(loaded), state_of(adapter))
    assert_equal(run(loaded, later), run(adapter, later))
    assert_same_state(state_of(loaded), state_of(adapter))


def saved_half_way_goes_on(adapter, net, path, batches):
    """Some batches, a state file, and the others: loaded without a source."""
    half = len(batches) // 2
    run(adapter, batches[:half])
    adapter.save(path)
    loaded = holdfast.load(path, net)
    assert_same_state(state_of(loaded), state_of(adapter))
    for images in batches[half:]:
        assert torch.equal(loaded(images), adapter(images))
        assert_same_state(state_of(loaded), state_of(adapter))


def predict_is_what_a_call_returns_and_changes_nothing(adapter, spec, images):
    before, last = state_of(adapter), adapter.last
    predicted = adapter.predict(images)
    assert_same_state(state_of(adapter), before)
    assert adapter.last is last
    got = adapter(images)
    # What leaves after the update is what is predicted from then on, unless it is taken back.
    after = adapter._slots.prediction.after
    stays = predicts_after(spec) and not resets(spec)
    predicted = adapter.predict(images) if stays else predicted
    if adapter._slots.answers_between:  # it tells what the first image is answered
        assert torch.allclose(predicted[0], got[0], atol=1e-5) or adapter._slots.refine
    else:
        assert torch.equal(predicted, got) or (after and not stays)
    assert not predicted.requires_grad


def bad_batch_is_an_error_and_changes_nothing(adapter, images, message):
    before = state_of(adapter)
    adapter.last = holdfast.Last()
    for call in (adapter.predict, adapter):
        with pytest.raises(ValueError, match=message):
            call(images)
        assert_same_state(state_of(adapter), before)
    assert re.search(message, adapter.last.refused)
