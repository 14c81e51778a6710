"""The Open Inference Protocol: tensors as JSON, in both directions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from holdfast.serving.answering import Answered
from holdfast.serving.errors import BadRequestError, TooLargeError
from holdfast.util.words import first_line, shortened

INPUT, LOGITS, CLASS = "images", "logits", "class"
OUTPUTS = (LOGITS, CLASS)
DATATYPES = ("FP32", "UINT8")

# A stream's name becomes a file's, and a request's id is saved: short, and nothing that hides.
STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
REQUEST = re.compile(r"[!-~]{1,100}")


# Flat, or nested as the shape says.
Row = list[float]
Plane = list[float | Row]
Picture = list[float | Plane]
Data = list[float | Picture]


class InputTensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: Data


class OutputName(msgspec.Struct):
    name: str


class InferRequest(msgspec.Struct):
    inputs: list[InputTensor]
    id: str | None = None
    outputs: list[OutputName] | None = None


def check_stream(name: str | None) -> str:
    if name is None:
        raise BadRequestError(
            "Which stream do the images belong to? Name it in the header x-session-id, as in "
            "curl -H 'x-session-id: camera-7'."
        )
    if not STREAM.fullmatch(name):
        raise BadRequestError(
            f"x-session-id {shortened(name, 60)!r} cannot be the name of a stream: take up to 100 "
            "letters, digits, '.', '_' and '-', the first a letter or digit."
        )
    return name


def check_request(name: str | None) -> str | None:
    if name is None or REQUEST.fullmatch(name):
        return name
    raise BadRequestError(
        f"{shortened(name, 60)!r} cannot be the id of a request: take up to 100 printable ASCII "
        "characters without spaces, such as a UUID."
    )


def read_request(body: bytes) -> InferRequest:
    try:
        request = msgspec.json.decode(body, type=InferRequest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequestError(
            f"The body is neither a JPEG or PNG nor a request as the Open Inference Protocol has "
            f"them ({first_line(error)}). Expected JSON such as "
            '{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 32, 32], '
            '"data": [0.1, 0.2]}]} with as many numbers as the shape says.'
        ) from None
    for output in request.outputs or ():
        if output.name not in OUTPUTS:
            raise BadRequestError(
                f"There is no output {shortened(output.name, 60)!r}: choose {' or '.join(OUTPUTS)}."
            )
    return request


def read_images(
    request: InferRequest, *, most_images: int, expected: tuple[int, int, int]
) -> Tensor:
    """Of shape (images, *expected), floats."""
    if len(request.inputs) != 1 or request.inputs[0].name != INPUT:
        names = ", ".join(shortened(given.name, 60) for given in request.inputs[:5]) or "none"
        raise BadRequestError(f"Inputs are {names}; expected one, {INPUT!r}.")
    given = request.inputs[0]
    _check_shape(given.shape, most_images, expected)
    if given.datatype not in DATATYPES:
        raise BadRequestError(
            f"The datatype is {shortened(given.datatype, 20)!r}; expected FP32, numbers in "
            "[0, 1], or UINT8, whole numbers from 0 to 255."
        )
    return _values(given)


def _check_shape(shape: list[int], most_images: int, expected: tuple[int, int, int]) -> None:
    if len(shape) != 4 or shape[0] < 1 or tuple(shape[1:]) != expected:
        channels, height, width = expected
        raise BadRequestError(
            f"Images of shape {shortened(str(shape), 60)}; expected [images, channels, height, "
            f"width], which for a single image of this model is [1, {channels}, {height}, {width}]."
        )
    if shape[0] > most_images:
        raise TooLargeError(
            f"{shortened(str(shape[0]), 20)} images in one request, and {most_images} are the "
            "most: send them in parts."
        )


def _values(given: InputTensor) -> Tensor:
    try:
        values = np.array(given.data, dtype=np.float64)
    except ValueError:
        raise BadRequestError(
            "The data are lists of different lengths: send one flat list of numbers."
        ) from None
    expected = math.prod(given.shape)
    if values.size != expected:
        raise BadRequestError(
            f"{values.size} numbers, and the shape {given.shape} takes {expected}: send both alike."
        )
    if given.datatype == "UINT8":
        if not bool(((values >= 0) & (values <= 255) & (values % 1 == 0)).all()):
            raise BadRequestError(
                "Some data are no whole numbers from 0 to 255: send such, or FP32 in [0, 1]."
            )
        values /= 255
    elif not bool((np.abs(values) < np.finfo(np.float32).max).all()):
        raise BadRequestError("Some data are too large for FP32: send numbers in [0, 1].")
    return torch.from_numpy(values.astype(np.float32)).view(given.shape)


def response(
    model: Mapping[str, str], stream: str, answered: Answered, id: str | None, wanted: list[str]
) -> bytes:
    logits = answered.logits.detach().float().cpu()
    outputs: list[dict[str, Any]] = []
    for name in wanted:
        values, datatype = (logits, "FP32") if name == LOGITS else (logits.argmax(1), "INT64")
        outputs.append(
            {
                "name": name,
                "datatype": datatype,
                "shape": list(values.shape),
                "data": values.flatten().tolist(),
            }
        )
    told = {
        "model_name": model["name"],
        "model_version": model["version"],
        **({} if id is None else {"id": id}),
        "parameters": {"stream": stream, "repeated": answered.repeated},
        "outputs": outputs,
    }
    return msgspec.json.encode(told)
