"""RMT's warm-up: done once, kept, resumed; and what a saved adapter needs of the source."""

import pytest
import torch
from plain_methods import WARM, rmt
from toys import (
    KINDS,
    ToyNet,
    assert_same_state,
    source_batches,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.parts.upkeep import Teacher


class Loader:
    """Batches that can be gone through again and again; `stop_at` counts over all passes."""

    def __init__(self, stop_at=None):
        self.served, self.stop_at = 0, stop_at

    def __iter__(self):
        for batch in source_batches():
            self.served += 1
            if self.served == self.stop_at:
                raise KeyboardInterrupt
            yield batch


@pytest.fixture
def forwards(monkeypatch):
    """Do something, and count the forwards of the toy net that it takes."""
    usual, seen = ToyNet.forward, []

    def counted(self, images):
        seen.append(len(images))
        return usual(self, images)

    def count(do):
        seen.clear()
        return do(), len(seen)

    monkeypatch.setattr(ToyNet, "forward", counted)
    return count


def prepared(net, loader=None, **options):
    """A source with all but the warm-up."""
    source = holdfast.Source.from_loader(net, loader or Loader(), **options)
    holdfast.adapt(net, rmt(), source=source)
    return source


WARMED = rmt(warmup_samples=WARM * 14)


def test_a_warm_up_is_done_once(forwards):
    net = toy_net()
    source = prepared(net)

    def cost(spec, **options):
        return forwards(lambda: holdfast.adapt(net, spec, source=source, **options))[1]

    assert cost(WARMED) == 2 * WARM
    assert cost(WARMED) == cost(WARMED, seed=3) == 0
    for settings in ({"temperature": 0.2}, {"weight_replay": 0.5}, {"augment": "none"}):
        assert cost(rmt(warmup_samples=WARM * 14, **settings)) == 0
    assert cost(WARMED + "+debias") == 0
    for settings in ({"lr": 0.001}, {"momentum": 0.8}, {"teacher_momentum": 0.99}):
        assert cost(rmt(warmup_samples=WARM * 14, **settings)) == 2 * WARM
    assert cost(rmt(warmup_samples=5 * 14 + 13)) == 2 * 5
    with pytest.raises(ValueError, match=r"less than one batch.*14 images"):
        cost(rmt(warmup_samples=13))


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_an_interrupted_warm_up_goes_on_where_it_stopped(where, forwards, tmp_path):
    net = toy_net()
    loader = Loader()
    cache = {"cache": tmp_path / "new folder"} if where == "disk" else {}
    source = prepared(net, loader, **cache)
    loader.stop_at = loader.served + 6
    with pytest.raises(KeyboardInterrupt):
        holdfast.adapt(net, WARMED, source=source)
    if where == "disk":
        source = prepared(net, **cache)
    resumed, cost = forwards(lambda: holdfast.adapt(net, WARMED, source=source))
    assert cost == 2 * (WARM - 5)
    whole = holdfast.adapt(net, WARMED, source=prepared(net))
    assert_same_state(state_of(resumed), state_of(whole))
    for images in stream():
        assert torch.equal(resumed(images), whole(images))
    if where == "disk":
        another = prepared(net, **cache)
        assert forwards(lambda: holdfast.adapt(net, WARMED, source=another))[1] == 0


@pytest.mark.parametrize("method", ["__call__", "follow"])
def test_a_warm_up_interrupted_within_a_step(method, monkeypatch):
    """The teacher is stopped at its fifth answer, or when the student has just moved."""
    usual, calls = getattr(Teacher, method), []

    def stopped(self, *args, **options):
        calls.append(method)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return usual(self, *args, **options)

    monkeypatch.setattr(Teacher, method, stopped)
    net = toy_net()
    source = prepared(net)
    with pytest.raises(KeyboardInterrupt):
        holdfast.adapt(net, WARMED, source=source)
    resumed = holdfast.adapt(net, WARMED, source=source)
    whole = holdfast.adapt(net, WARMED, source=prepared(net))
    assert_same_state(state_of(resumed), state_of(whole))


def test_a_warm_up_shows_its_progress_on_a_terminal_only(monkeypatch, capsys):
    net = toy_net()
    for forced in (False, True):
        source = prepared(net)
        capsys.readouterr()
        if forced:
            monkeypatch.setenv("FORCE_COLOR", "1")
        holdfast.adapt(net, WARMED, source=source)
        shown = capsys.readouterr().err
        assert ("warm-up" in shown) == (f"{WARM}/{WARM}" in shown) == forced


def test_save_and_load(tmp_path, forwards):
    """The file holds the warm-up, not the images: another source with the loader will do. Its own
    augmentation goes on with what it would have drawn."""
    net = toy_net()
    path = tmp_path / "state"
    spec = rmt(warmup_samples=WARM * 14, augment="cotta") + "+debias"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    images = stream()
    start = [adapter(each) for each in images[:4]]
    adapter.save(path)
    with pytest.raises(ValueError, match="source="):
        holdfast.load(path, net)
    other = toy_source(net)
    loaded, cost = forwards(lambda: holdfast.load(path, net, source=other))
    assert cost == 0
    for each in images[4:]:
        assert torch.equal(loaded(each), adapter(each))
    loaded.reset()
    for each, logits in zip(images[:4], start, strict=True):
        assert torch.equal(loaded(each), logits)


def test_without_replay_a_file_is_enough(tmp_path):
    net = toy_net()
    path = tmp_path / "state"
    spec = rmt(warmup_samples=28, weight_replay=0)
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    adapter.save(path)
    loaded = holdfast.load(path, net)
    for images in stream(KINDS[:4]):
        assert torch.equal(loaded(images), adapter(images))
