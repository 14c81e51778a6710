"""What a person holds: streams that come, go, are saved and come back."""

import pytest
import torch
from toys import assert_same_state, state_of, stream, toy_net, toy_source

import holdfast

SPEC = "eata(redundancy=2)+debias"
NAMES = ("door", "yard", "night")


@pytest.fixture(scope="module")
def source(net):
    return toy_source(net, 16)


@pytest.fixture
def make(net, source, tmp_path):
    def fleet(spec=SPEC, folder=tmp_path / "streams", **options):
        return holdfast.Fleet(net, spec, source=source, folder=folder, **options)

    return fleet


def state_in(fleet, name):
    fleet.health(name)  # puts it in place
    return state_of(fleet._network)


def given(images):
    return {name: images[number:] for number, name in enumerate(NAMES)}


@pytest.mark.parametrize("options", [{}, {"window": 20}, {"guard": "rollback"}], ids=str)
@pytest.mark.parametrize(
    "spec", [SPEC, f"{SPEC}+steady", "rotta(capacity=12,every=20)", "tent+consistency"]
)
def test_evicted_and_brought_back_is_never_evicted_bit_for_bit(
    make, net, source, monkeypatch, spec, options
):
    # Else a guard has its first state to go back to after hundreds of images.
    monkeypatch.setattr("holdfast.engine.last.Watch.settled", lambda self: True)
    tight = make(spec, resident=2, **options)
    adapters = {name: holdfast.adapt(net, spec, source=source, **options) for name in NAMES}
    for images in stream(("some", "all", "none", "some")):
        for name, each in given(images).items():
            assert torch.equal(tight(name, each), adapters[name](each))
            assert len(tight._seats) <= 2
    for name, adapter in adapters.items():
        assert_same_state(state_in(tight, name), state_of(adapter))
        if "guard" in options:
            assert_same_state(tight._network._state.healthy, adapter._state.healthy)
            assert_same_state(tight._network._state.latest, adapter._state.latest)


@pytest.mark.parametrize("spec", [SPEC, f"{SPEC}+steady"])
def test_a_new_process_goes_on_from_the_folder(make, spec):
    first, second = make(spec), make(spec, folder=None)
    for images in stream(("some", "all")):
        for fleet in (first, second):
            fleet.step(given(images))
    first.save()
    later = make(spec)
    assert later.streams() == sorted(NAMES) and not later._seats
    (images,) = stream(("some",), seed=3)
    expected = second.step(given(images))
    for name, logits in later.step(given(images)).items():
        assert torch.equal(logits, expected[name])


@pytest.mark.parametrize("spec", [SPEC, f"{SPEC}+steady"])
def test_a_step_of_more_streams_than_may_be_in_memory(make, spec):
    roomy, tight = make(spec, folder=None), make(spec, resident=2)
    for images in stream(("some", "all", "some")):
        expected = roomy.step(given(images))
        for name, logits in tight.step(given(images)).items():
            torch.testing.assert_close(logits, expected[name], atol=1e-4, rtol=0)
        assert len(tight._seats) == 2


def test_the_one_that_was_not_used_for_longest_leaves(make):
    fleet = make("tent", resident=2)
    (images,) = stream(("some",))
    for name in ("a", "b", "a", "c"):
        fleet(name, images)
    assert set(fleet._seats) == {"a", "c"}
    fleet.health("a")
    fleet.add("d")
    assert set(fleet._seats) == {"a", "d"} and fleet.streams() == ["a", "b", "c", "d"]


def test_nothing_is_written_again_that_is_written(make, tmp_path):
    fleet = make("tent")
    (images,) = stream(("some",))
    fleet("a", images)
    fleet.save("a")
    (file,) = (tmp_path / "streams").glob("*.safetensors")
    file.unlink()
    fleet.save()
    assert not file.exists()
    fleet.notes("a")["request"] = 7
    fleet.save()
    assert file.exists() and make("tent").notes("a") == {"request": 7}


def test_what_a_stream_has_not_moved_is_not_held():
    """Prototypes of classes that no image was taken for are the source's, for all streams."""
    torch.manual_seed(0)
    net = toy_net()
    net.fc = torch.nn.Linear(12, 600)
    spec = "tent+debias(lambda_src=0,filter=false)"
    fleet, adapter = holdfast.Fleet(net, spec), holdfast.adapt(net, spec)
    (large,) = fleet._network.layout.large
    assert large == "terms/ema/prototypes"
    given = dict(zip("ab", torch.rand(2, 16, 3, 8, 8), strict=True))
    moved = {}
    for name, images in given.items():
        fleet(name, images)
        moved[name] = fleet._seats[name].held.moved[large].places
        labels = holdfast.adapt(net, "bn")(images).argmax(1).unique()
        assert torch.equal(moved[name], labels) and len(labels) < 20
    assert set(moved["b"].tolist()) - set(moved["a"].tolist())  # those are not a's to have
    adapter(given["a"])
    assert_same_state(state_in(fleet, "a"), state_of(adapter))
    fleet.reset("a")
    assert fleet._seats["a"].held.bytes() == 0


def test_streams_are_added_reset_and_removed(make):
    fleet = make("tent")
    first, second = stream(("some", "all"))
    fleet.add("a")
    assert "a" in fleet and "b" not in fleet and 5 not in fleet and len(fleet) == 1
    fresh = fleet("a", first)
    fleet.notes("a")["count"] = 1
    fleet("a", second)
    fleet.save()
    fleet.reset("a")
    assert fleet.last("a") == holdfast.Last() and fleet.notes("a") == {"count": 1}
    assert torch.equal(fleet("a", first), fresh)
    fleet.remove("a")
    assert "a" not in fleet and "a" not in make("tent") and fleet.streams() == []
    assert torch.equal(fleet("a", first), fresh)


def test_predict_changes_nothing(make):
    fleet, adapter = make("tent"), holdfast.adapt(toy_net(), "tent")
    first, second = stream(("some", "all"))
    fleet("a", first)
    adapter(first)
    before = state_in(fleet, "a")
    assert torch.equal(fleet.predict("a", second), adapter.predict(second))
    assert_same_state(state_in(fleet, "a"), before)
    fleet.predict("new", second)
    assert "new" not in fleet


def test_health_is_the_streams_own(make):
    fleet = make("tent", resident=1)
    adapters = {name: holdfast.adapt(toy_net(), "tent") for name in "ab"}
    for images in stream(("some", "all", "none")):
        for name, each in {"a": images, "b": images[:3]}.items():
            fleet(name, each)
            adapters[name](each)
    for name, adapter in adapters.items():
        assert fleet.health(name) == adapter.health


def test_refused_images_of_one_stream(make):
    fleet = make("tent")
    (images,) = stream(("some",))
    with pytest.raises(ValueError, match=r"1 of 2 streams were refused.*bad: .*divide by 255"):
        fleet.step({"good": images, "bad": 255 * images})
    assert fleet.last("good").stepped and "bad" not in fleet
    with pytest.raises(ValueError, match=r"^Images lie in .*divide by 255"):
        fleet("good", 255 * images)
    assert "divide by 255" in fleet.last("good").refused
    expected = holdfast.adapt(toy_net(), "tent")
    expected(images)
    assert torch.equal(fleet("good", images), expected(images))


@pytest.mark.parametrize("name", ["", 7, None])
def test_a_name_is_a_text(make, name):
    fleet = make("tent")
    (images,) = stream(("some",))
    for call in (fleet.add, fleet.health, lambda n: fleet.step({"a": images, n: images})):
        with pytest.raises(ValueError, match="named by a text that is not empty, not "):
            call(name)
    assert fleet.streams() == []


def test_errors_say_what_to_do(make):
    fleet = make("tent", folder=None)
    for call in (fleet.health, fleet.last, fleet.notes, fleet.reset, fleet.remove):
        with pytest.raises(ValueError, match=r"There is no stream 'a': .*add\('a'\)"):
            call("a")
    fleet.add("a")
    with pytest.raises(ValueError, match="There is a stream 'a' already"):
        fleet.add("a")
    with pytest.raises(ValueError, match="has no folder to save streams in"):
        fleet.save()
    with pytest.raises(ValueError, match="takes a folder to save them in: pass folder="):
        make("tent", folder=None, resident=3)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        make("tent", resident=0)
    saved = make("tent")
    saved.add("a")
    saved.notes("a")["model"] = object()
    with pytest.raises(ValueError, match="saved as JSON, which these cannot be"):
        saved.save()


def test_what_cannot_be_saved_stays_in_memory(make, tmp_path, monkeypatch):
    fleet = make("tent", resident=1)
    (images,) = stream(("some",))
    fleet("a", images)

    def full(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.util.files.write", full)
        with pytest.raises(OSError, match="No space left"):
            fleet("b", images)
    expected = holdfast.adapt(toy_net(), "tent")
    expected(images)
    assert list(fleet._seats) == ["a"] and torch.equal(fleet("a", images), expected(images))
    fleet("b", images)
    assert fleet.streams() == ["a", "b"]


def test_warnings_name_the_stream_and_the_line_that_called(make):
    fleet = make("eta(redundancy=0)")
    (images,) = stream(("none",), size=2)
    for _ in range(99):
        fleet("gate", images)
    with pytest.warns(UserWarning, match="^gate: eta took 0 of the last 100") as caught:
        fleet("gate", images)
    assert [warning.filename for warning in caught] == [__file__]
