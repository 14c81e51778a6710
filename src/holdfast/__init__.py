"""Keep a deployed image classifier accurate while its input drifts.

adapter = holdfast.adapt(model, "eata+debias", source=holdfast.Source.from_loader(model, loader))
logits = adapter(images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.api import adapt as adapt
    from holdfast.api import load as load
    from holdfast.engine.adapter import Adapter as Adapter
    from holdfast.engine.health import Health as Health
    from holdfast.engine.health import HealthOptions as HealthOptions
    from holdfast.engine.last import Last as Last
    from holdfast.explain.doctor import doctor as doctor
    from holdfast.fleet.fleet import Fleet as Fleet
    from holdfast.models.normalization import normalized as normalized
    from holdfast.recipes.adacontrast import Adacontrast as Adacontrast
    from holdfast.recipes.aetta import Aetta as Aetta
    from holdfast.recipes.asr import Asr as Asr
    from holdfast.recipes.base import Learner as Learner
    from holdfast.recipes.base import Method as Method
    from holdfast.recipes.bn import Bn as Bn
    from holdfast.recipes.cmf import Cmf as Cmf
    from holdfast.recipes.compose import compose as compose
    from holdfast.recipes.consistency import Consistency as Consistency
    from holdfast.recipes.cotta import Cotta as Cotta
    from holdfast.recipes.debias import Debias as Debias
    from holdfast.recipes.deyo import Deyo as Deyo
    from holdfast.recipes.eata import Eata as Eata
    from holdfast.recipes.eata import Eta as Eta
    from holdfast.recipes.ensemble import Ensemble as Ensemble
    from holdfast.recipes.frozen import Frozen as Frozen
    from holdfast.recipes.lame import Lame as Lame
    from holdfast.recipes.memo import Memo as Memo
    from holdfast.recipes.note import Note as Note
    from holdfast.recipes.petta import Petta as Petta
    from holdfast.recipes.prior import Prior as Prior
    from holdfast.recipes.rdumb import Rdumb as Rdumb
    from holdfast.recipes.registry import methods as methods
    from holdfast.recipes.registry import register as register
    from holdfast.recipes.reservoir import Reservoir as Reservoir
    from holdfast.recipes.rmt import Rmt as Rmt
    from holdfast.recipes.roid import Roid as Roid
    from holdfast.recipes.rotta import Rotta as Rotta
    from holdfast.recipes.rpl import Rpl as Rpl
    from holdfast.recipes.santa import Santa as Santa
    from holdfast.recipes.sar import Sar as Sar
    from holdfast.recipes.shift import Shift as Shift
    from holdfast.recipes.sotta import Sotta as Sotta
    from holdfast.recipes.steady import Steady as Steady
    from holdfast.recipes.t3a import T3a as T3a
    from holdfast.recipes.tent import Tent as Tent
    from holdfast.recipes.tsd import Tsd as Tsd
    from holdfast.recipes.ttac import Ttac as Ttac
    from holdfast.rehearsal.rehearsal import Rehearsal as Rehearsal
    from holdfast.rehearsal.rehearsal import rehearse as rehearse
    from holdfast.source.source import Source as Source
    from holdfast.util.cpu import tune_cpu as tune_cpu
    from holdfast.util.settings import setting as setting
else:
    # Where each name lives. They are loaded when first asked for, so that `import holdfast` and
    # the command line's help do not wait for torch.
    _PLACES = {
        "Adapter": "engine.adapter",
        "Fleet": "fleet.fleet",
        "Health": "engine.health",
        "HealthOptions": "engine.health",
        "Last": "engine.last",
        "Learner": "recipes.base",
        "Method": "recipes.base",
        "Rehearsal": "rehearsal.rehearsal",
        "Source": "source.source",
        "adapt": "api",
        "compose": "recipes.compose",
        "doctor": "explain.doctor",
        "load": "api",
        "methods": "recipes.registry",
        "normalized": "models.normalization",
        "register": "recipes.registry",
        "rehearse": "rehearsal.rehearsal",
        "setting": "util.settings",
        "tune_cpu": "util.cpu",
    }
    __all__ = list(_PLACES)

    def __getattr__(name: str) -> object:
        """A public name, or a method's class under its own name: `holdfast.Eata`."""
        if name in _PLACES:
            return getattr(import_module(f"holdfast.{_PLACES[name]}"), name)
        if name[:1].isupper():
            from holdfast.recipes.registry import methods

            for method in methods().values():
                if method.__name__ == name:
                    return method
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")

    def __dir__() -> list[str]:
        from holdfast.recipes.registry import methods

        return sorted([*_PLACES, *(method.__name__ for method in methods().values())])


__version__ = "0.5.0"
