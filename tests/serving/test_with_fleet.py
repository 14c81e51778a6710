"""The service on a real fleet: each stream as an adapter of its own would have answered."""

import pytest
import torch
from served import METHOD, alone, ask, batches, serving
from toys import toy_net

import holdfast
from holdfast.serving.errors import BadRequestError, ConflictError


@pytest.fixture
def made(net, tmp_path):
    with serving(net, tmp_path) as make:
        yield make


@pytest.mark.parametrize("resident", [None, 1])
def test_streams_go_on_as_if_each_were_alone_and_a_restart_changes_nothing(made, net, resident):
    shown = {name: batches(seed) for seed, name in enumerate("abc")}
    expected = {name: alone(net, images) for name, images in shown.items()}
    service = made(resident=resident)
    for at in range(4):
        if at == 2:
            assert service.drain() == []
            service = made(resident=resident)
        for _ in range(2):  # what is sent again under its id is not learnt again
            waiting = {n: service.submit(n, images[at], f"r{at}") for n, images in shown.items()}
            for name, future in waiting.items():
                found = future.result(60).logits
                torch.testing.assert_close(found, expected[name][at], rtol=1e-5, atol=1e-5)


def test_bad_images_are_refused_and_leave_the_stream_as_it_was(made, net):
    service = made()
    first, second, *_ = images = batches(0)
    expected = alone(net, images)
    ask(service, "a", first)
    for bad in (first * 255, first[:, :, :0], first[:, :1], torch.full_like(first, float("nan"))):
        with pytest.raises(BadRequestError):
            ask(service, "a", bad)
        with pytest.raises(BadRequestError):
            ask(service, "new", bad)
    torch.testing.assert_close(ask(service, "a", second).logits, expected[1])
    assert service.fleet.streams() == ["a"]


def test_a_damaged_file_is_set_aside_and_never_a_fresh_state(made, tmp_path):
    service = made()
    images = batches(0)
    ask(service, "a", images[0])
    service.drain()
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-20])
    service = made()
    for _ in range(2):
        with pytest.raises(ConflictError, match="set aside"):
            ask(service, "a", images[1])
    ask(service, "b", images[1])
    service.drain()
    service = made()  # also after another restart
    with pytest.raises(ConflictError, match="set aside"):
        ask(service, "a", images[1])
    service.reset("a").result(60)
    fresh = holdfast.adapt(toy_net(), METHOD)(images[1])
    torch.testing.assert_close(ask(service, "a", images[1]).logits, fresh)


def test_a_new_model_under_an_old_stream_is_refused_with_what_to_do(made, tmp_path):
    service = made()
    images = batches(0)
    ask(service, "a", images[0])
    service.drain()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("a.*")}
    newer = made(model=toy_net(seed=1))
    with pytest.raises(ConflictError, match="another model: take the model it was saved with"):
        ask(newer, "a", images[1])
    assert {path.name: path.read_bytes() for path in tmp_path.glob("a.*")} == before
    newer.remove("a").result(60)
    ask(newer, "a", images[1])


def test_health_is_the_streams_own(made):
    service = made()
    for name in "ab":
        ask(service, name, batches(1)[0])
    seen = service.watched.all()
    assert seen.keys() == {"a", "b"}
    for name in "ab":
        assert seen[name].health == service.fleet.health(name)
        assert seen[name].health.entropy > 0 and 0 < seen[name].largest <= 1
