"""Methods as a person may write them into a file."""

HEAD = """
from dataclasses import dataclass
from typing import ClassVar

from holdfast import Learner, Method, register, setting
from holdfast.parts import Term, TermResult
"""

SURE = """
class Sureness(Term):
    def forward(self, step):
        return TermResult(step.entropy.mean(), len(step.images))


@dataclass(frozen=True)
class Sure(Learner):
    \"\"\"Minimises the entropy.\"\"\"

    gain: float = setting(1.0, "weight of the entropy", at_least=0)

    def terms(self, task):
        return [Sureness("sureness", self.gain)]


@register("gentle-push")
@dataclass(frozen=True)
class Push(Method):
    \"\"\"Adds the entropy to any host.\"\"\"

    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    force: float = setting(0.1, "weight of the entropy", at_least=0)

    def terms(self, task):
        return [Sureness("push", self.force)]
"""

# A file as a whole, with something in it that is no method.
MINE = HEAD + SURE + "number = 3\n"
