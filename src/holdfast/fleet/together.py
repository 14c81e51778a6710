"""Which streams go through the network together, and that one does not touch the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from holdfast.engine.abreast import Abreast, Admitted, Served
from holdfast.engine.last import Last
from holdfast.fleet.seat import Seat


def in_rounds(streams: list[str], resident: int | None) -> Iterator[list[str]]:
    """As many streams at a time as may be in memory."""
    most = resident or max(len(streams), 1)
    for start in range(0, len(streams), most):
        yield streams[start : start + most]


def serve(
    network: Abreast, seats: Mapping[str, Seat], batches: Mapping[str, Tensor]
) -> dict[str, Tensor | Exception]:
    """Of each stream its logits, and its seat has then what they did; or why its images were
    refused."""
    found: dict[str, Tensor | Exception] = {}
    for streams in _groups(network, seats, batches) if network.groups else ():
        found |= _serve_group(network, seats, streams)
    for stream in seats:
        if stream not in found:
            found[stream] = _serve_alone(network, seats[stream], batches[stream])
    return found


def _groups(
    network: Abreast, seats: Mapping[str, Seat], batches: Mapping[str, Tensor]
) -> list[dict[str, Admitted]]:
    """Two streams or more whose images have one shape. One image that is normalised by others goes
    alone; and so do images that are refused, which says why."""
    by_shape: dict[torch.Size, dict[str, Admitted]] = {}
    for stream, seat in seats.items():
        try:
            admitted = network.admit(seat.held, batches[stream])
        except ValueError:
            continue
        if len(admitted.images) > 1 or not network.network.by_batch:
            by_shape.setdefault(admitted.images.shape[1:], {})[stream] = admitted
    return [group for group in by_shape.values() if len(group) > 1]


def _serve_group(
    network: Abreast, seats: Mapping[str, Seat], streams: Mapping[str, Admitted]
) -> dict[str, Tensor | Exception]:
    try:
        served = network.serve_together(list(streams.values()))
    except (ValueError, RuntimeError):
        return {}  # nothing has changed: alone, each is told what is wrong with its own
    found: dict[str, Tensor | Exception] = {}
    for stream, result in zip(streams, served, strict=True):
        seat = seats[stream]
        if isinstance(result, Served):
            found[stream], seat.held, seat.last = result
        else:
            found[stream], seat.last = result, Last(refused=str(result))
    return found


def _serve_alone(network: Abreast, seat: Seat, images: Tensor) -> Tensor | Exception:
    try:
        logits, seat.held = network.serve(seat.held, images)
    except Exception as error:
        return error
    finally:
        seat.last = network.last
    return logits


def as_one(errors: Mapping[str, Exception], streams: int) -> Exception:
    """One error of several streams'."""
    if len(errors) == 1 == streams:
        return next(iter(errors.values()))
    texts = "; ".join(f"{stream}: {error}" for stream, error in errors.items())
    return ValueError(
        f"{len(errors)} of {streams} streams were refused, the others have been adapted to (with "
        f"refused={{}} their logits are returned, and what was refused is put there). {texts}"
    )
