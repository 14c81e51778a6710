"""What every host with every plug-in is asked each time: one test a pair, so that it is made once.
Which law is broken is the name of the function that fails. `make test-full` asks pairs all laws."""

from functools import cache

import pytest
import torch
from compositions import PAIRS, PLUGINS, declares_neutral, has_neutral, neutralised, without_neutral
from laws import (
    bad_batch_is_an_error_and_changes_nothing,
    loaded_goes_on_as_if_never_stopped,
    neutral_is_not_there,
    predict_is_what_a_call_returns_and_changes_nothing,
)
from running import KINDS, load, run
from toy_methods import ToyCentre
from toys import state_of, stream

import holdfast


@pytest.fixture(scope="module")
def of_host(net, source):
    """What a host gives along the stream, and the state it ends in; each runs once."""

    @cache
    def run_host(spec):
        adapter = holdfast.adapt(net, spec, source=source)
        return run(adapter, stream(KINDS)), state_of(adapter)

    return run_host


@pytest.mark.parametrize("spec", PAIRS)
def test_a_pair(adapt, net, source, of_host, tmp_path, spec):
    if has_neutral(spec):
        expected, state = of_host(without_neutral(spec))
        neutral_is_not_there(adapt(neutralised(spec)), stream(KINDS), expected, state)
    adapter = adapt(spec)
    for images in stream(KINDS):
        predict_is_what_a_call_returns_and_changes_nothing(adapter, spec, images)
    bad = stream(("some",))[0].index_fill(0, torch.tensor([3]), float("nan"))
    bad_batch_is_an_error_and_changes_nothing(adapter, bad, "NaN or Inf")
    adapter.save(tmp_path / "state")
    loaded = load(tmp_path / "state", net, spec, source)
    loaded_goes_on_as_if_never_stopped(loaded, adapter, stream(KINDS[:3], seed=2, last=5))


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_says_which_settings_are_neutral_or_that_none_are(name):
    """If not: neutral = {setting: value, …} under which it changes nothing, or neutral = None."""
    plugin = holdfast.methods()[name]
    assert declares_neutral(plugin)
    assert (plugin.neutral or {}).keys() <= {one.name for one in plugin.settings()}


def test_a_plugin_that_does_not_say_so_is_told_apart():
    assert not declares_neutral(ToyCentre)
