"""What a person is told: predictions have collapsed, or a method hardly takes a step."""

import warnings

import pytest
import torch
from toys import CLASSES, assert_same_state, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.engine.adapter import KIND
from holdfast.engine.last import Watch
from holdfast.util import files


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


def test_how_much_two_watches_saw_alike():
    one, other, third = Watch(10), Watch(10), Watch(10)
    one(torch.tensor([0, 0, 0, 1]))
    other(torch.tensor([0, 1, 2, 3]))
    third(torch.tensor([7]))
    assert one.overlap(one) == pytest.approx(1)
    assert one.overlap(other) == other.overlap(one) == pytest.approx(0.5)
    assert one.overlap(third) == 0


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
    with pytest.warns(UserWarning, match=r"tent has collapsed.*reset\(\).*rollback"):
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


def test_each_alarm_is_shown_also_where_python_shows_a_text_once():
    adapter = watched(rollback=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            tip(adapter)
            feed_until_collapse(adapter)
    told = [str(each.message) for each in caught if "collapsed" in str(each.message)]
    assert len(told) == 2 and f"(batch {adapter.last.batch})" in told[1]


def test_a_snapshot_survives_saving(tmp_path):
    adapter = watched(rollback=True)
    tip(adapter)
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", Tipping())
    for each in (adapter, loaded):
        with pytest.warns(UserWarning, match="put back"):
            feed_until_collapse(each)
    assert_same_state(state_of(loaded), state_of(adapter))


def run(adapter, kinds):
    """The warnings that came, by batch."""
    found = {}
    for number, images in enumerate(stream(kinds), start=1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adapter(images)
        if caught:
            found[number] = "; ".join(str(each.message) for each in caught)
    return found


def test_a_filter_that_leaves_nearly_all_out_is_told_of_once(tmp_path):
    net = toy_net()
    adapter = holdfast.adapt(net, "eata(redundancy=0)", source=toy_source(net))
    told = run(adapter, ("all",) * 130)
    assert list(told) == [100]
    assert "took 1 of the last 100 steps" in told[100]
    assert "redundancy=0 drops most images of 7 classes" in told[100]
    # The one step, the first, is no longer among the last hundred.
    assert (adapter.last.step_rate, adapter.last.hardly_acts) == (0.0, True)
    adapter.save(tmp_path / "state")
    again = holdfast.load(tmp_path / "state", net)
    assert run(again, ("all",) * 3) == {}
    assert again.last.hardly_acts
    again.reset()
    assert list(run(again, ("all",) * 101)) == [100]


@pytest.mark.parametrize("spec", ["tent", "sar", "debias(lambda_src=0)", "rotta(every=400)"])
def test_a_method_that_takes_its_steps_is_not_told_of(spec):
    """RoTTA's steps are due after every 400 images only, which are 25 batches."""
    adapter = holdfast.adapt(toy_net(), spec)
    assert not any("hardly" in text for text in run(adapter, ("all",) * 104).values())
    assert (adapter.last.step_rate, adapter.last.hardly_acts) == (1.0, False)
    assert int(adapter._state.activity.due) == (4 if spec.startswith("rotta") else 104)


def test_an_optimiser_that_goes_on_without_a_reliable_image_is_no_step():
    adapter = holdfast.adapt(toy_net(), "sar(entropy_factor=0.01)")
    told = run(adapter, ("none",) * 100)
    assert adapter.last.stepped and "took 0 of the last 100" in told[100]


def test_one_step_in_twenty_is_enough():
    adapter = holdfast.adapt(toy_net(), "debias(lambda_src=0)")
    assert run(adapter, (("all",) + ("none",) * 19) * 5) == {}
    assert adapter.last.step_rate == pytest.approx(0.05)
    assert list(run(adapter, ("none",))) == [1]


def test_what_never_learns_has_no_rate():
    for spec in ("bn", "t3a"):
        adapter = holdfast.adapt(toy_net(), spec)
        assert not any("hardly" in text for text in run(adapter, ("all",) * 101).values())
        assert (adapter.last.due, adapter.last.step_rate) == (False, None)


def test_a_batch_that_is_refused_was_due_and_changes_nothing():
    adapter = holdfast.adapt(toy_net(), "tent")
    with torch.no_grad():
        adapter.network.head.weight.fill_(torch.nan)
    run(adapter, ("all",) * 2)
    assert adapter.last.refused is not None
    assert adapter.last.due and not adapter.last.stepped
    assert adapter.last.step_rate is None


def test_a_state_of_version_0_1_begins_to_count_anew(tmp_path):
    net = toy_net()
    adapter = holdfast.adapt(net, "tent")
    run(adapter, ("all",) * 3)
    adapter.save(tmp_path / "state")
    header, tensors = files.read(tmp_path / "state", KIND)
    old = {name: t for name, t in tensors.items() if not name.startswith("activity/")}
    assert len(old) < len(tensors)
    files.write(tmp_path / "old", KIND, header, old)
    again = holdfast.load(tmp_path / "old", net)
    run(again, ("all",))
    assert (again.last.batch, again.last.step_rate) == (4, 1.0)
