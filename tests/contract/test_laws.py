"""The laws. Every method and every host + plug-in inherits them by being registered: each method
alone is asked now, pairs now in test_pairs.py and here in `make test-full`."""

import copy
import math

import pytest
import torch
from compositions import (
    COMPOSITIONS,
    ON_A_HOST,
    counts_batches,
    has_neutral,
    in_episodes,
    keeps_samples,
    may_abstain,
    names_layers,
    needs_a_batch,
    needs_batch_norm,
    needs_convolutions,
    neutralised,
    predicts_after,
    routes,
    trains_norms,
    without_neutral,
)
from laws import (
    loaded_goes_on_as_if_never_stopped,
    neutral_is_not_there,
    predict_is_what_a_call_returns_and_changes_nothing,
)
from running import KINDS, LAW, OPENINGS, assert_equal, law_of, law_of_openings, load, run
from torch import nn
from toys import (
    CLASSES,
    assert_same_state,
    group_norm,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.explain.card import card


@law_of([s for s in ON_A_HOST if has_neutral(s)])
def test_a_plugin_with_neutral_settings_is_not_there(adapt, spec):
    host = adapt(without_neutral(spec))
    expected = run(host, stream(KINDS))
    neutral_is_not_there(adapt(neutralised(spec)), stream(KINDS), expected, state_of(host))


@law_of_openings
def test_saved_and_loaded_goes_on_as_if_never_stopped(adapt, net, source, tmp_path, spec):
    adapter = adapt(spec)
    run(adapter, stream(KINDS))
    adapter.save(tmp_path / "state")
    loaded = load(tmp_path / "state", net, spec, source)
    loaded_goes_on_as_if_never_stopped(loaded, adapter, stream(KINDS, seed=2, last=5))


@law_of_openings
def test_reset_is_fresh(adapt, spec):
    adapter = adapt(spec)
    fresh = state_of(adapter)
    first = run(adapter, stream(KINDS))
    adapter.reset()
    assert_same_state(state_of(adapter), fresh)
    assert adapter.last == holdfast.Last()
    assert_equal(run(adapter, stream(KINDS)), first)


@LAW
def test_same_seed_same_result_whatever_torch_draws(adapt, spec):
    one, other = adapt(spec, seed=3), adapt(spec, seed=3)
    for images in stream(KINDS):
        got = one(images)
        torch.rand(7)
        before = torch.get_rng_state()
        assert torch.equal(other(images), got)
        assert torch.equal(torch.get_rng_state(), before)


@LAW
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_callers_model_is_untouched(spec, mode):
    net = toy_net().train(mode == "train")
    net.conv1.weight.requires_grad_(False)
    calls = []
    net.fc.register_forward_hook(lambda *_: calls.append(1))
    weights = copy.deepcopy(net.state_dict())
    grads = {name: (p.requires_grad, p.grad) for name, p in net.named_parameters()}
    modes = {name: module.training for name, module in net.named_modules()}
    hooks = {
        name: (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in net.named_modules()
    }
    adapter = holdfast.adapt(net, spec, source=toy_source(net, 16))
    run(adapter, stream(KINDS))
    adapter.frozen()
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name])
    assert grads == {name: (p.requires_grad, p.grad) for name, p in net.named_parameters()}
    assert modes == {name: module.training for name, module in net.named_modules()}
    assert hooks == {
        name: (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in net.named_modules()
    }


@law_of_openings
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_works_without_gradients_switched_on(adapt, net, spec, mode, tmp_path):
    expected = run(adapt(spec), stream(KINDS))
    with mode():
        adapter = holdfast.adapt(net, spec, source=toy_source(net, 16))
        # Made in this mode, and already in the network's memory format: nothing need copy them.
        images = [each.contiguous(memory_format=torch.channels_last) for each in stream(KINDS)]
        got = run(adapter, images)
        adapter.predict(images[0])
        adapter.save(tmp_path / "state")
        loaded = load(tmp_path / "state", net, spec, adapter.source)
        assert_equal(run(loaded, images), run(adapter, images))
        adapter.reset()
    assert_equal(got, expected)


@LAW
def test_a_smaller_last_batch_works(adapt, spec):
    adapter = adapt(spec)
    *_, last = run(adapter, stream(KINDS, last=3))
    assert last.shape == (3, CLASSES)
    assert adapter.last.refused is None


@LAW
def test_a_batch_of_one(adapt, spec):
    adapter = adapt(spec)
    before = state_of(adapter)
    image = stream(("some",))[0][:1]
    if needs_a_batch(spec):
        with pytest.raises(ValueError, match=r"batch of one.*window=W"):
            adapter(image)
        if predicts_after(spec):  # by running statistics, which serve one image
            assert adapter.predict(image).shape == (1, CLASSES)
        else:
            with pytest.raises(ValueError, match=r"window=W"):
                adapter.predict(image)
        assert_same_state(state_of(adapter), before)
        assert "window" in adapter.last.refused
    else:
        assert adapter(image).shape == (1, CLASSES)


@law_of([s for s in COMPOSITIONS if not (keeps_samples(s) or counts_batches(s) or in_episodes(s))])
@pytest.mark.filterwarnings("ignore:.*the stream has batches of")
def test_a_window_of_single_images_is_a_batch_of_the_last(adapt, spec):
    """Image t is predicted and learnt from within images t−3 … t; the first has only itself."""
    single, batched = adapt(spec, window=4), adapt(spec)
    images = stream(("some", "all"))
    images = torch.cat(images)[::2]
    for t in range(1, len(images) + 1):
        got = single(images[t - 1 : t])
        window = images[max(0, t - 4) : t]
        if t == 1 and needs_a_batch(spec):
            assert not single.last.stepped
            continue
        assert torch.equal(got, batched(window)[-1:])


@LAW
def test_a_net_without_norm_layers(spec):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.ReLU(), nn.Linear(9, CLASSES))
    method = holdfast.compose(spec).host.selection()
    source = toy_source(net, 16)
    if method.what == "norm" or method.renews:
        with pytest.raises(ValueError, match=r"norm.*Sequential has no.*(select=all|frozen)"):
            holdfast.adapt(net, spec, source=source)
    elif needs_batch_norm(spec):
        with pytest.raises(ValueError, match=r"Sequential has no batch norm layer: leave"):
            holdfast.adapt(net, spec, source=source)
    elif names_layers(spec):
        with pytest.raises(ValueError, match=r"Sequential has no layer 'norm1'"):
            holdfast.adapt(net, spec, source=source)
    elif needs_convolutions(spec):
        with pytest.raises(ValueError, match=r"Sequential has no convolution.*leave the plug-in"):
            holdfast.adapt(net, spec, source=source)
    else:
        run(holdfast.adapt(net, spec, source=source), stream(KINDS))


@law_of([s for s in COMPOSITIONS if trains_norms(s)])
@pytest.mark.parametrize("norm", [group_norm, nn.InstanceNorm2d])
def test_a_net_without_batch_norm_takes_single_images(spec, norm):
    net = toy_net(
        lambda channels: (
            norm(channels, affine=True) if norm is nn.InstanceNorm2d else norm(channels)
        )
    )
    if needs_batch_norm(spec):
        with pytest.raises(ValueError, match=r"ToyNet has no batch norm layer: leave"):
            holdfast.adapt(net, spec, source=toy_source(net, 16))
        return
    adapter = holdfast.adapt(net, spec, source=toy_source(net, 16))
    assert adapter(stream(("all",))[0][:1]).shape == (1, CLASSES)


@LAW
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_dropout_is_not_switched_on(spec, mode):
    net, bare = toy_net(), toy_net()
    adapter = holdfast.adapt(net.train(mode == "train"), spec, source=toy_source(net, 16))
    bare.dropout = nn.Identity()
    without = holdfast.adapt(bare, spec, source=toy_source(bare, 16))
    assert_equal(run(adapter, stream(KINDS)), run(without, stream(KINDS)))


@law_of([s for s in COMPOSITIONS if may_abstain(s) and not routes(s)])
def test_no_reliable_image_leaves_weights_alone(adapt, spec):
    """Where no term speaks whatever the batch (as Tent's entropy does), nothing moves."""
    adapter = adapt(spec)
    run(adapter, stream(("some", "all")))
    before = {name: p.detach().clone() for name, p in adapter.model.named_parameters()}
    learnt = {n: t for n, t in state_of(adapter).items() if n.startswith(("terms", "optimizer"))}
    run(adapter, stream(("none", "none")))
    assert not adapter.last.stepped
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, before[name])
    after = state_of(adapter)
    assert_same_state({name: after[name] for name in learnt}, learnt)


# What is exported of several states is the one met last.
@pytest.mark.usefixtures("toy_methods")
@law_of([s for s in COMPOSITIONS if not routes(s)] + [s for s in OPENINGS if "toy-lights" not in s])
def test_frozen_with_batch_statistics_agrees_with_predict(adapt, spec):
    adapter = adapt(spec)
    run(adapter, stream(KINDS))
    # In the adapter's memory format, since the toy net's mean over an image depends on the order.
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    frozen = adapter.frozen(statistics="batch")
    assert not frozen.training
    assert not any(module.training for module in frozen.modules())
    assert torch.equal(frozen(images), adapter.predict(images))


@law_of_openings
def test_predict_is_what_a_call_returns_and_changes_nothing(adapt, spec):
    adapter = adapt(spec)
    for images in stream(KINDS):
        predict_is_what_a_call_returns_and_changes_nothing(adapter, spec, images)


@LAW
@pytest.mark.parametrize("weights", ["as they are", "neutral"])
def test_forwards_and_backwards_are_as_the_card_says(net, source, spec, weights, monkeypatch):
    """Counted outside the package: by a hook on the model, and at torch's backward."""
    spec = neutralised(spec) if weights == "neutral" and has_neutral(spec) else spec
    counts = {"forward": 0, "backward": 0}
    watched = copy.deepcopy(net)
    watched.register_forward_hook(lambda *_: counts.update(forward=counts["forward"] + 1))
    backward = torch.autograd.backward

    def counting(*args, **kwargs):
        counts["backward"] += 1
        return backward(*args, **kwargs)

    adapter = holdfast.adapt(watched, spec, source=source)
    monkeypatch.setattr(torch.autograd, "backward", counting)
    method = adapter.method
    assert len(stream(KINDS)[0]) <= (method.host.largest_batch() or math.inf)
    for images in stream(KINDS):
        counts.update(forward=0, backward=0)
        adapter(images)
        times = len(images) if method.host.episode_steps() else 1
        for counted, (fewest, most) in zip(
            counts.values(), (method.forwards, method.backwards), strict=True
        ):
            assert times * fewest <= counted <= times * most
        assert (adapter.last.forwards, adapter.last.backwards) == tuple(counts.values())
        assert adapter.last.stepped == (
            bool(counts["backward"]) or method.host.steps_without_gradient
        )


@LAW
def test_what_trains_is_what_the_card_says(adapt, net, spec):
    adapter = adapt(spec)
    own = dict(net.named_parameters())
    head = {name for name in own if name.startswith("fc.")}
    named = {
        "nothing": set(),
        "scale and shift of the norm layers": {name for name in own if name.startswith("norm")},
        "all but the head": own.keys() - head,
        "all": own.keys(),
    }
    text, _, more = card(spec).trains.partition(", and ")
    learn = adapter._slots.learn
    trained = set() if learn is None else {id(p) for p in learn.parameters.values()}
    assert {n for n, p in adapter.model.named_parameters() if id(p) in trained} == named[text]
    beside = len(trained) - len(named[text])
    assert (beside > 0) == bool(more)
    run(adapter, stream(KINDS))
    for name, weight in adapter.model.named_parameters():
        assert name in named[text] or torch.equal(weight, own[name])
