"""Write a new method in one file. Run it: python examples/new_method.py

Each prediction should be sure, and all classes should be used: information maximisation. Once
registered, a method has a spec string, a card, plug-ins upon it, save and resume. The command line
takes it too: holdfast run -m tent -m examples/new_method.py:Infomax
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import tyro

import holdfast
from holdfast import Learner, register, setting
from holdfast.bench import Recorder
from holdfast.data import glyphs
from holdfast.data.streams import parse
from holdfast.explain.card import card
from holdfast.parts import Step, Task, Term, TermResult


class Sureness(Term):
    """Mean entropy of the predictions."""

    def forward(self, step: Step) -> TermResult:
        return TermResult(step.entropy.mean(), len(step.images))


class Diversity(Term):
    """Minus the entropy of the batch's mean prediction."""

    def forward(self, step: Step) -> TermResult:
        mean = step.probabilities.mean(0)
        return TermResult(-torch.special.entr(mean).sum(), len(step.images))


@register("infomax")
@dataclass(frozen=True)
class Infomax(Learner):
    """Minimises the entropy of each prediction and maximises that of their mean.

    L = mean of H(p) − diversity · H(mean of p)
    """

    paper: ClassVar[str] = "after Liang et al. 2020, SHOT, arXiv 2002.08546"
    lr: float = setting(2.5e-4, "learning rate", at_least=0)
    diversity: float = setting(1.0, "weight of the mean prediction's entropy", at_least=0)

    def terms(self, task: Task) -> list[Term]:
        return [Sureness("sureness"), Diversity("diversity", self.diversity)]

    def always_drives(self) -> bool:
        return True


def main(limit: int = 256) -> None:
    """limit: images of each domain."""
    print(card("infomax"))
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader(2500))
    for method in ("tent", "infomax", "infomax+debias"):
        adapter = holdfast.adapt(model, method, source=source)
        recorder = Recorder(classes=len(glyphs.CLASSES))
        for batch in parse(f"continual(limit={limit})").over(glyphs.benchmark(), seed=0):
            recorder.record(adapter(batch.images), batch.labels, batch.domains, last=adapter.last)
        print(f"{method}: {recorder.mean_accuracy:.1f} %, bias {100 * recorder.total.bias:.1f} %")


if __name__ == "__main__":
    tyro.cli(main)
