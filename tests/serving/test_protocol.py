"""Tensors as the Open Inference Protocol writes them, and what is not one."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.serving.answering import Answered
from holdfast.serving.errors import BadRequestError, TooLargeError
from holdfast.serving.protocol import (
    check_request,
    check_stream,
    read_images,
    read_request,
    response,
)

SHAPE = (3, 2, 2)


def asked(data, shape=(1, *SHAPE), datatype="FP32", **others):
    tensor = {"name": "images", "shape": list(shape), "datatype": datatype, "data": data}
    return json.dumps({"inputs": [{**tensor, **others}]}).encode()


def read(body, most=4, expected=SHAPE):
    return read_images(read_request(body), most_images=most, expected=expected)


@given(st.integers(1, 4), st.booleans(), st.sampled_from(["FP32", "UINT8"]), st.integers(0, 99))
def test_images_are_read_flat_or_nested(count, nested, datatype, seed):
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(0, 256, (count, *SHAPE), generator=generator)
    images = whole / 255
    sent = whole if datatype == "UINT8" else images
    data = (sent if nested else sent.flatten()).tolist()
    torch.testing.assert_close(read(asked(data, (count, *SHAPE), datatype)), images)


FLAT = [0.5] * 12


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"inputs": 3}',
        b'{"inputs": []}',
        b"\x00\xff",
        b"[" * 100_000,
        asked(FLAT, name="pixels"),
        asked(FLAT, shape=(3, 2, 2)),
        asked(FLAT, shape=(1, 2, 2, 3)),
        asked(FLAT, shape=(0, 3, 2, 2)),
        asked(FLAT, shape=(-1, 3, 2, 2)),
        asked(FLAT, shape=(10**40, 3, 2, 2)),
        asked(FLAT, shape=(2, 3, 2, 2)),
        asked(FLAT, shape=()),
        asked(FLAT, datatype="BYTES"),
        asked(FLAT, datatype="UINT8"),
        asked([256] + [0] * 11, datatype="UINT8"),
        asked([-1] + [0] * 11, datatype="UINT8"),
        asked(FLAT[1:]),
        asked([]),
        asked(["0.5"] * 12),
        asked([None] * 12),
        asked([True] * 12),
        asked([{}] * 12),
        asked([[0.5] * 5, [0.5] * 7]),
        asked([1e39] * 12),
        asked([10**400] * 12),
        asked(FLAT).replace(b"0.5", b"NaN", 1),
        asked(FLAT).replace(b"0.5", b"1e999", 1),
        asked(FLAT).replace(b"0.5", b"Infinity", 1),
        asked(FLAT)[:-1] + b', "outputs": [{"name": "labels"}]}',
        asked(FLAT)[:-1] + b', "id": 5}',
    ],
)
def test_what_is_no_request_is_an_error_that_says_what_to_send(body):
    with pytest.raises(
        (BadRequestError, TooLargeError), match=r"expected|Expected|send|choose"
    ) as e:
        read(body)
    assert len(str(e.value)) < 600


def test_too_many_images_are_to_be_sent_in_parts():
    with pytest.raises(TooLargeError, match="in parts"):
        read(asked(FLAT * 5, shape=(5, *SHAPE)))


@pytest.mark.parametrize("name", ["camera-7", "A", "0", "a.b_c-d", "x" * 100])
def test_names_of_streams(name):
    assert check_stream(name) == name


@pytest.mark.parametrize(
    "name", [None, "", ".", "..", "../x", "a/b", "a b", "a\n", "ä", "-x", "x" * 101, "a\x00", "%2e"]
)
def test_absurd_names_of_streams_are_refused(name):
    with pytest.raises(BadRequestError, match="x-session-id"):
        check_stream(name)


def test_ids_of_requests():
    assert check_request(None) is None
    assert check_request("3f1c-{x}:7") == "3f1c-{x}:7"
    for name in ("", "a b", "ä", "x" * 101, "a\n"):
        with pytest.raises(BadRequestError, match="id of a request"):
            check_request(name)


def test_a_response_holds_what_was_asked_for():
    logits = torch.tensor([[0.1, 0.7], [3.0, -1.0], [0.0, 0.5]])
    model = {"name": "net", "version": "abc"}
    told = json.loads(response(model, "s", Answered(logits), "r1", ["class", "logits"]))
    assert (told["model_name"], told["model_version"], told["id"]) == ("net", "abc", "r1")
    assert told["parameters"] == {"stream": "s", "repeated": False}
    classes, scores = told["outputs"]
    assert classes == {"name": "class", "datatype": "INT64", "shape": [3], "data": [1, 0, 1]}
    assert (scores["name"], scores["datatype"], scores["shape"]) == ("logits", "FP32", [3, 2])
    torch.testing.assert_close(torch.tensor(scores["data"]).view(3, 2), logits)
    assert "id" not in json.loads(response(model, "s", Answered(logits), None, ["class"]))
