"""The source model beside an adapter, and the second opinion that goes with it."""

import copy

import pytest
import torch
from drifting import adapt_watched, calibrated, drifted, home_net, images_of, labelled
from running import quietly

import holdfast


@pytest.fixture(scope="module")
def groups_home():
    """The net with group norm in place of batch norm, which no batch can tell anything."""
    net = home_net()
    for name, layer in list(net.named_children()):
        if isinstance(layer, torch.nn.BatchNorm2d):
            setattr(net, name, torch.nn.GroupNorm(1, layer.num_features))
    return net, calibrated(net)


def reference_of(adapter):
    return adapter._state.monitor.reference


@pytest.mark.parametrize("kind", ["clean", "bright", "tint", "dark"])
def test_the_second_opinion_is_the_source_model_under_steady(home, kind):
    net, source = home
    steady = holdfast.adapt(net, "bn+steady", source=source)
    reference = reference_of(adapt_watched(home, "tent"))
    (images,) = images_of(kind)
    seen = reference(images)
    torch.testing.assert_close(seen.second, steady.predict(images))
    torch.testing.assert_close(seen.logits, net(images).detach())
    assert torch.equal(reference.logits(images), seen.logits)
    if kind == "clean":
        torch.testing.assert_close(seen.second, seen.logits)
    if kind in ("tint", "dark"):
        assert not torch.allclose(seen.second, seen.logits, atol=1e-2)


def test_nothing_that_is_learnt_changes_it(home):
    adapter = adapt_watched(home, "tent(lr=0.05)")
    (images,) = images_of("dark")
    before = reference_of(adapter)(images)
    quietly(adapter, images_of("tint", 5))
    after = reference_of(adapter)(images)
    assert torch.equal(before.second, after.second) and torch.equal(before.logits, after.logits)
    assert not torch.allclose(adapter.predict(images), after.second, atol=1e-2)


def test_it_takes_no_weights_of_its_own(home):
    reference = reference_of(adapt_watched(home))
    for own, shared in zip(
        reference.second.model.parameters(), reference.network.model.parameters(), strict=True
    ):
        assert own.data_ptr() == shared.data_ptr()


def test_without_batch_norm_it_is_the_source_models_own(groups_home):
    adapter = adapt_watched(groups_home, "tent")
    (images,) = images_of("bright")
    seen = reference_of(adapter)(images)
    assert reference_of(adapter).second is None and torch.equal(seen.second, seen.logits)
    quietly(adapter, [images])
    assert 0 <= adapter.health.accuracy <= 1


def test_what_an_older_holdfast_calibrated_has_to_be_made_again(home):
    net, source = home
    adapt_watched(home)  # which calibrates it
    older = copy.copy(source)
    before = {n.replace("health/2/", "health/"): t for n, t in source.tensors.items()}
    assert before.keys() != source.tensors.keys()
    older.drifted, older.tensors = None, before
    with pytest.warns(UserWarning, match="older holdfast.*Source.from_loader.*holdout.drifted"):
        adapter = holdfast.adapt(net, "bn", source=older)
    quietly(adapter, images_of())
    assert adapter.health.accuracy is None and adapter.health.confidence is not None
    with (
        pytest.warns(UserWarning, match="older holdfast"),
        pytest.raises(ValueError, match="calibrated for that"),
    ):
        holdfast.adapt(net, "bn", source=older, guard="fallback")


def test_that_a_source_is_calibrated_for_other_answers_is_said(home):
    net, source = home
    adapt_watched(home, "bn")  # which calibrates it
    held = copy.copy(source)
    held.drifted = None
    held.tensors = {n: t for n, t in source.tensors.items() if "/BySteady" not in n}
    with pytest.warns(UserWarning, match=r"answers are of another kind.*Source\.load.*drifted="):
        adapter = holdfast.adapt(net, "bn+steady", source=held)
    quietly(adapter, images_of())
    assert adapter.health.accuracy is None


def test_one_that_can_be_calibrated_again_is(home):
    net, source = home
    adapt_watched(home)
    older = copy.copy(source)
    older.tensors = dict(source.tensors)
    name = "health/2/ByBatch-Student/rows"
    older.tensors[name] = older.tensors[name][:, :6]
    adapter = holdfast.adapt(net, "bn", source=older)
    assert torch.equal(older.tensors[name], source.tensors[name])
    quietly(adapter, images_of())
    assert adapter.health.accuracy is not None


def test_that_few_images_tell_little_is_said(home):
    net, _ = home
    few = drifted()[:1] + [batch for batch in drifted() if batch[2] != "clean"]
    source = holdfast.Source.from_loader(net, [labelled(count=99)], drifted=few)
    with pytest.warns(UserWarning, match=r"made of 99 source images: .* about 1,000") as told:
        holdfast.adapt(net, "bn", source=source)
    (text,) = [str(each.message) for each in told if "calibrated on" in str(each.message)]
    assert "calibrated on 32 clean images, and so are rough: give 64" in text
    # However they are cut, and though they are shown by label once more.
    images, labels = labelled(count=40)
    cut = [(images[part], labels[part], "clean") for part in torch.arange(40).split(20)]
    source = holdfast.Source.from_loader(net, [labelled(count=99)], drifted=cut + few[1:])
    with pytest.warns(UserWarning, match="calibrated on 40 clean images"):
        holdfast.adapt(net, "bn", source=source)


def test_a_source_without_what_estimates_go_by_says_which_loader_it_takes(home, tmp_path):
    net, _ = home
    holdfast.Source.from_loader(net, [labelled()]).save(tmp_path / "source")
    source = holdfast.Source.load(tmp_path / "source", drifted=drifted())
    with pytest.raises(ValueError, match=r"Source\.load\(path, loader, drifted=…\), or leave"):
        holdfast.adapt(net, "bn", source=source)
    holdfast.adapt(net, "bn", source=holdfast.Source.load(tmp_path / "source"))
