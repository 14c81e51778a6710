"""State files that hold something else than they should, under a checksum that fits."""

import pytest
import torch
from toys import stream, toy_net

import holdfast
from holdfast.engine.adapter import KIND
from holdfast.util import files


@pytest.fixture
def load_with(tmp_path):
    """Load a state of eta with other tensors, or another header."""
    net, path = toy_net(), tmp_path / "state"
    adapter = holdfast.adapt(net, "eta", rollback=True, window=4)
    adapter(stream(("all",))[0])
    adapter.save(path)
    header, tensors = files.read(path, KIND)

    def load(change_tensors=lambda tensors: {}, change_header=lambda header: {}):
        changed = {**header, **change_header(header)}
        kept = {name: value for name, value in changed.items() if value is not ...}
        files.write(path, KIND, kept, {**tensors, **change_tensors(tensors)})
        return holdfast.load(path, net)

    return load


def test_the_file_itself_is_taken(load_with):
    load_with()


@pytest.mark.parametrize("name", ["model/norm1.weight", "healthy/model/norm1.weight"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[:1].clone(), r"shape \(1,\); expected torch.float32 of shape \(8,\)"),
        (lambda t: t[0].clone(), r"shape \(\); expected"),
        (lambda t: t.double(), "torch.float64 of shape"),
        (lambda t: t.long(), "torch.int64 of shape"),
        (lambda t: torch.full_like(t, torch.nan), "holds NaN; expected numbers"),
    ],
)
def test_a_tensor_is_neither_converted_nor_repeated(load_with, name, change, message):
    with pytest.raises(ValueError, match=rf"{name}.*{message}.*adapt\(\) anew"):
        load_with(lambda tensors: {name: change(tensors[name])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: {"options": ...}, "has nothing for 'options'; expected dict"),
        (lambda header: {"model": 5}, "has 5 for 'model'; expected str"),
        (lambda header: {"head": ["fc"]}, "for 'head'; expected str | None"),
        (
            lambda header: {"options": {**header["options"], "colour": 1}},
            r"does not know \(colour\): use the holdfast that wrote it",
        ),
        (
            lambda header: {"options": {**header["options"], "input_range": ["a", "b"]}},
            r"input_range is \(low, high\) or None",
        ),
        (
            lambda header: {"options": {**header["options"], "rollback": "yes"}},
            "rollback is True or False, not 'yes'",
        ),
        (
            lambda header: {"options": {**header["options"], "health": {"colour": 1}}},
            "expected of health the options estimator, every, level, found.*load another one",
        ),
    ],
)
def test_a_header_that_is_not_what_it_should_be(load_with, change, message):
    with pytest.raises(ValueError, match=message):
        load_with(change_header=change)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels", lambda t: t + 100),
        ("labels", lambda t: t + 0.5),
        ("labels", lambda t: t[1:]),
        ("entropies", lambda t: -t - 1),
        ("entropies", lambda t: t * torch.nan),
        ("born", lambda t: t + 2**62),
        ("clock", lambda t: t * 0),
        ("images", lambda t: t.long()),
        ("images", lambda t: t[0, 0]),
    ],
)
def test_a_memory_that_no_stream_could_have_brought(tmp_path, name, change):
    net, path = toy_net(), tmp_path / "state"
    adapter = holdfast.adapt(net, "rotta(capacity=12,every=20)")
    adapter(stream(("all",))[0])
    adapter.save(path)
    header, tensors = files.read(path, KIND)
    changed = change(tensors[f"memory/{name}"]).clone()
    files.write(path, KIND, header, {**tensors, f"memory/{name}": changed})
    with pytest.raises(ValueError, match=r"does not hold the state of rotta.*adapt\(\) anew"):
        holdfast.load(path, net)


@pytest.mark.parametrize("name", ["batches", "optimizer/norm1.weight.step"])
def test_a_count_below_zero(tmp_path, name):
    net, path = toy_net(), tmp_path / "state"
    holdfast.adapt(net, "tent(optimizer=adam)").save(path)
    header, tensors = files.read(path, KIND)
    files.write(path, KIND, header, {**tensors, name: tensors[name] - 2**30})
    with pytest.raises(ValueError, match=rf"{name}.*counts below 0.*adapt\(\) anew"):
        holdfast.load(path, net)


def test_a_file_without_kind_or_format(tmp_path):
    net = toy_net()
    for header in ({"format": 1}, {"kind": "x"}):
        path = tmp_path / "state"
        text = files.json.dumps(header)
        metadata = {"holdfast": text, "sha256": files.tensor_hash({}, text)}
        files.save_file({}, path, metadata=metadata)
        with pytest.raises(ValueError, match="its header has nothing for"):
            holdfast.load(path, net)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.to_sparse(), "a sparse_coo tensor; expected a dense one"),
        (lambda x: x.to("meta"), "a meta tensor"),
        (lambda x: torch.nested.nested_tensor([x[0], x[1]]), "a nested tensor"),
        (lambda x: torch.quantize_per_tensor(x, 1 / 255, 0, torch.quint8), "a quantised tensor"),
        (lambda x: x.to(torch.float8_e4m3fn), r"16 bits or more: images\.float\(\)"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_images_in_a_tensor_of_another_sort(change, message):
    adapter = holdfast.adapt(toy_net(), "tent")
    with pytest.raises(ValueError, match=message):
        adapter(change(stream(("all",))[0]))
