"""consistency: predictions stay the same under strong augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast import Learner, register, setting
from holdfast.parts import AUGMENTATIONS, Augment, AugmentationName, Step, Task, Term, TermResult


class Agreement(Term):
    """CE between the prediction for the images (the target, detached) and for their new view."""

    def __init__(self, weight: float, augment: Augment):
        super().__init__("consistency", weight)
        self.augment = augment

    def forward(self, step: Step) -> TermResult:
        view = step.view(self.augment(step.images))
        loss = nn.functional.cross_entropy(view.logits, step.detached_probabilities)
        return TermResult(loss, len(step.images), self.augment.commit)


@register("consistency")
@dataclass(frozen=True)
class Consistency(Learner):
    """Asks for the same prediction on a strongly augmented copy of the batch.

    L = L_host + λ_cons · mean of CE(softmax of x, detached; softmax of the augmented x)
    """

    paper: ClassVar[str] = (
        "Chung, Hwang, Yoo, Kwak, Mitigating the bias in the model for continual test-time "
        "adaptation, arXiv 2403.01344, appendix"
    )
    memory: ClassVar[str] = "the activations of the augmented batch"
    plugin: ClassVar[bool] = True
    neutral: ClassVar = {"lambda_cons": 0.0}
    standalone: ClassVar[bool] = False

    lambda_cons: float = setting(1.0, "weight of the term; 0 leaves it out", at_least=0)
    augment: AugmentationName = setting(
        "strong", "the new view: strong (a draw for each image), cotta's or rotta's, or a fixed one"
    )

    def terms(self, task: Task) -> list[Term]:
        if not self.lambda_cons:
            return []
        augment = task.augment(AUGMENTATIONS[self.augment])
        return [Agreement(self.lambda_cons, augment)]

    def always_drives(self) -> bool:
        return self.has_effect()

    def extra_forwards(self) -> int:
        return int(self.has_effect())
