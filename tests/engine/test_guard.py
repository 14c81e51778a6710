import pytest
import torch
from toys import CLASSES, assert_same_state, state_of, stream, toy_net

import holdfast
from holdfast.engine.collapse import Watch


def test_spread_is_one_when_even_and_zero_when_one_class_is_left():
    even, one = Watch(10), Watch(10)
    for _ in range(50):
        even(torch.arange(10).repeat(4))
        one(torch.full((40,), 3))
    assert even.spread() == pytest.approx(1, abs=1e-9)
    assert one.spread() == pytest.approx(0, abs=1e-9)


def test_half_of_the_classes_is_no_collapse():
    watch = Watch(100)
    alarms = [watch(torch.arange(50)) for _ in range(100)]
    assert not any(alarms)
    assert watch.spread() == pytest.approx(49 / 99, abs=1e-6)


def test_collapse_is_told_once_and_again_after_recovery():
    watch = Watch(10)
    good, bad = torch.arange(10).repeat(5), torch.zeros(50).long()
    alarms = [watch(good) for _ in range(20)]
    alarms += [watch(bad) for _ in range(100)]
    assert sum(alarms) == 1
    assert alarms.index(True) > 20
    assert not any(watch(good) for _ in range(100))
    assert sum(watch(bad) for _ in range(100)) == 1


class Tipping(torch.nn.Module):
    """A toy net that predicts one class only once its scale has been driven up."""

    def __init__(self):
        super().__init__()
        self.net = toy_net()

    def forward(self, images):
        tipped = (self.net.norm1.weight.mean() > 1.5).float()
        return self.net(images) + tipped * 1000 * torch.eye(CLASSES)[0]


def tip(adapter):
    with torch.no_grad():
        adapter.model.net.norm1.weight.add_(1)


def watched(**options):
    adapter = holdfast.adapt(Tipping(), "tent(lr=0)", **options)
    for _ in range(10):
        for images in stream(("all", "some", "all", "some")):
            adapter(images)
    assert not adapter.last.collapsed
    return adapter


def feed_until_collapse(adapter):
    for count in range(200):
        adapter(stream(("all",), seed=count)[0])
        if adapter.last.collapsed:
            return
    raise AssertionError("no collapse was seen")


def test_collapse_only_raises_an_alarm():
    adapter = watched()
    tip(adapter)
    with pytest.warns(UserWarning, match=r"tent has collapsed.*reset\(\).*rollback=True"):
        feed_until_collapse(adapter)
    assert not adapter.last.rolled_back
    assert adapter.model.net.norm1.weight.mean() > 1.5


def test_rollback_goes_back_to_a_healthy_state():
    adapter = watched(rollback=True)
    healthy = adapter.model.net.norm1.weight.detach().clone()
    tip(adapter)
    with pytest.warns(UserWarning, match="last healthy state was put back"):
        feed_until_collapse(adapter)
    assert adapter.last.rolled_back
    assert torch.equal(adapter.model.net.norm1.weight, healthy)


def test_a_snapshot_survives_saving(tmp_path):
    adapter = watched(rollback=True)
    tip(adapter)
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", Tipping())
    for each in (adapter, loaded):
        with pytest.warns(UserWarning, match="put back"):
            feed_until_collapse(each)
    assert_same_state(state_of(loaded), state_of(adapter))
