"""Which streams go through the network together, and that one does not touch the others."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from holdfast.engine.turns import Turns
from holdfast.fleet.seat import Seat


def serve(
    network: Turns, seats: Mapping[str, Seat], batches: Mapping[str, Tensor]
) -> dict[str, Tensor | Exception]:
    """Of each stream its logits, and its seat has then what they did; or why its images were
    refused."""
    return {stream: _serve_alone(network, seats[stream], batches[stream]) for stream in seats}


def _serve_alone(network: Turns, seat: Seat, images: Tensor) -> Tensor | Exception:
    try:
        logits, seat.held = network.serve(seat.held, images)
    except Exception as error:
        return error
    finally:
        seat.last = network.last
    return logits
