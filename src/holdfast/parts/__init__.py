"""The slots of a method and what fills them: all that a method's author needs beside
`holdfast.Method`, `holdfast.Learner`, `holdfast.register` and `holdfast.setting`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.engine.draws import Draws as Draws
    from holdfast.engine.network import Network as Network
    from holdfast.engine.network import features_and_logits as features_and_logits
    from holdfast.engine.network import logits_of as logits_of
    from holdfast.engine.norms import ByBatch as ByBatch
    from holdfast.engine.norms import ByRunning as ByRunning
    from holdfast.engine.norms import BySource as BySource
    from holdfast.engine.norms import Normalisation as Normalisation
    from holdfast.engine.norms import Statistics as Statistics
    from holdfast.engine.robust_norms import ByMixture as ByMixture
    from holdfast.engine.step import Step as Step
    from holdfast.engine.task import Task as Task
    from holdfast.parts.augment import AUGMENTATIONS as AUGMENTATIONS
    from holdfast.parts.augment import Augment as Augment
    from holdfast.parts.augment import Augmentation as Augmentation
    from holdfast.parts.augment import AugmentationName as AugmentationName
    from holdfast.parts.learn import Descent as Descent
    from holdfast.parts.learn import Learn as Learn
    from holdfast.parts.learn import PlainStep as PlainStep
    from holdfast.parts.learn import Proposal as Proposal
    from holdfast.parts.memory import Memory as Memory
    from holdfast.parts.memory import MemoryStep as MemoryStep
    from holdfast.parts.predict import Export as Export
    from holdfast.parts.predict import Predicted as Predicted
    from holdfast.parts.predict import Prediction as Prediction
    from holdfast.parts.predict import Refine as Refine
    from holdfast.parts.predict import Student as Student
    from holdfast.parts.route import Learnt as Learnt
    from holdfast.parts.route import Route as Route
    from holdfast.parts.route import Routed as Routed
    from holdfast.parts.sam import SamStep as SamStep
    from holdfast.parts.select import Select as Select
    from holdfast.parts.supports import Joined as Joined
    from holdfast.parts.supports import Supports as Supports
    from holdfast.parts.teacher import Teacher as Teacher
    from holdfast.parts.terms import ReliableEntropy as ReliableEntropy
    from holdfast.parts.terms import Term as Term
    from holdfast.parts.terms import TermResult as TermResult
    from holdfast.parts.terms import symmetric_cross_entropy as symmetric_cross_entropy
    from holdfast.parts.upkeep import MeanTeacher as MeanTeacher
    from holdfast.parts.upkeep import Outcome as Outcome
    from holdfast.parts.upkeep import ResetEvery as ResetEvery
    from holdfast.parts.upkeep import Upkeep as Upkeep
else:
    # Where names live, loaded when first asked for: the engine imports the parts' modules, and
    # some of these names are the engine's.
    _PLACES = {
        "engine.draws": ("Draws",),
        "engine.network": ("Network", "features_and_logits", "logits_of"),
        "engine.norms": ("ByBatch", "ByRunning", "BySource", "Normalisation", "Statistics"),
        "engine.robust_norms": ("ByMixture",),
        "engine.step": ("Step",),
        "engine.task": ("Task",),
        "parts.augment": ("AUGMENTATIONS", "Augment", "Augmentation", "AugmentationName"),
        "parts.learn": ("Descent", "Learn", "PlainStep", "Proposal"),
        "parts.memory": ("Memory", "MemoryStep"),
        "parts.predict": ("Export", "Predicted", "Prediction", "Refine", "Student"),
        "parts.route": ("Learnt", "Route", "Routed"),
        "parts.sam": ("SamStep",),
        "parts.select": ("Select",),
        "parts.supports": ("Joined", "Supports"),
        "parts.teacher": ("Teacher",),
        "parts.terms": ("ReliableEntropy", "Term", "TermResult", "symmetric_cross_entropy"),
        "parts.upkeep": ("MeanTeacher", "Outcome", "ResetEvery", "Upkeep"),
    }
    _MODULES = {name: module for module, names in _PLACES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'holdfast.parts' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(_MODULES)
