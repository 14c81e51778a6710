"""What parts of a step cost by themselves."""

from __future__ import annotations

from functools import partial

import torch
from meter import milliseconds
from race import Contestant, tell
from subject import Subject

from holdfast.engine.draws import Draws
from holdfast.engine.network import Network
from holdfast.engine.norms import ByBatch
from holdfast.parts.augment import AUGMENTATIONS, Augment
from holdfast.parts.upkeep import Teacher
from holdfast.recipes.debias import Debias, EmaPrototypes

VIEWS = 32


def measure_views(subject: Subject, rounds: int) -> tuple[Contestant, Contestant]:
    """A teacher's plain forwards, and those of CoTTA's augmented views, as many of each; the two
    take turns view by view. A round is the sum over all views."""
    device = subject.device
    network = Network(subject.net)
    network.normalise(ByBatch())
    teacher = Teacher(network, {})
    images = network.prepare(subject.images)
    augment = Augment(AUGMENTATIONS["cotta"], Draws(0, device))
    plain = Contestant(lambda: teacher(images))
    augmented = Contestant(lambda: teacher(network.prepare(augment(images))))
    pair = [plain, augmented]
    for contestant in pair:
        contestant.run()
    for index in range(rounds):
        tell(f"{subject.name}: views, round {index + 1} of {rounds}")
        for contestant in pair:
            contestant.milliseconds.append(0.0)
        for _ in range(VIEWS):
            for contestant in pair:
                contestant.milliseconds[-1] += milliseconds(contestant.run, device)
            pair.reverse()
    tell("")
    return plain, augmented


@torch.no_grad()
def measure_prototypes(batch: int, device: torch.device) -> dict[int, float]:
    """Milliseconds of one update of the EMA prototypes, by the number of classes."""
    fastest = {}
    for classes in (1_000, 21_841):
        rows = torch.randn(classes, 2048, device=device)
        term = EmaPrototypes(Debias().resolved(), rows)
        features = torch.rand(batch, 2048, device=device)
        labels = torch.randint(classes, (batch,), device=device)
        update = partial(term.update, features, labels)
        fastest[classes] = min(milliseconds(update, device) for _ in range(200))
    return fastest
