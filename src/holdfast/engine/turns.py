"""One adapter's network serves many streams, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from holdfast.engine.adapter import Adapter
from holdfast.engine.health import Health
from holdfast.engine.held import Held, Layout
from holdfast.engine.last import Last
from holdfast.engine.options import Options
from holdfast.engine.state import guarded
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source


class Turns(Adapter):
    """An adapter into which a stream's own state is put, used, and taken out again. The network is
    built once; what fails leaves a stream's state as it is held."""

    def __init__(
        self, model: nn.Module, method: Composition, source: Source | None, options: Options
    ):
        super().__init__(model, method, source, options)
        bound = self._bound()
        self.layout = Layout(
            self._state.fresh,
            {
                f"{part}/{name}": tensor
                for part, own in bound.items()
                for name, tensor in own.items()
            },
        )
        self._bound_parts = tuple(bound)
        # The stream whose state is in place; None: no state that is whole.
        self._in_place: Held | None = None

    def _bound(self) -> dict[str, Mapping[str, Tensor]]:
        """Parts of the state whose tensors are the same objects for ever, themselves."""
        return {}

    def serve(self, held: Held, images: Tensor) -> tuple[Tensor, Held]:
        """Logits of a stream's images, and its state after them; `last` says what they did."""
        self.put(held)
        self._in_place = None
        logits = self._take_in(images)
        return logits, self.take()

    def foresee(self, held: Held, images: Tensor) -> Tensor:
        """What `serve` would answer before any update."""
        self.put(held)
        return self.predict(images)

    def health_of(self, held: Held) -> Health:
        self.put(held)
        return self.health

    def news(self, last: Last) -> list[str]:
        """What of a batch a person should be told."""
        return last.news(self.method.names, quiet=self.options.guard == "none")

    @torch.no_grad()
    def put(self, held: Held) -> None:
        """Have a stream's state in place."""
        if held is self._in_place:
            return
        self._in_place = None
        state = self._state
        with torch.inference_mode(False):
            self.layout.write(held, state.tensors(self._bound_parts))
            state.draws.state = state.fresh_draws if held.draws is None else held.draws
            state.load_extra_state(held.extra)
            if state.keeps_healthy:
                state.healthy = held.healthy or guarded(state.fresh)
                state.latest = held.latest or guarded(state.fresh)
        self._in_place = held

    @torch.no_grad()
    def take(self) -> Held:
        """The state that is in place, to be held."""
        state = self._state
        with torch.inference_mode(False):
            flat, moved = self.layout.pack(state.tensors(self._bound_parts))
        keeps = state.keeps_healthy
        held = Held(
            flat,
            moved,
            state.extra_state(),
            state.draws.state,
            state.healthy if keeps else None,
            state.latest if keeps else None,
        )
        self._in_place = held
        return held
