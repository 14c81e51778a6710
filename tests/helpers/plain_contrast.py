"""The contrast of RMT and SANTA by hand, and weights that train in parts."""

import torch
from plain import PlainAdam, PlainSgd, PlainToy
from toys import CLASSES

PROJECTOR = ("0.weight", "0.bias", "2.weight", "2.bias")


def plain_prototypes(net, batches):
    """Class means of raw features by true label; each batch's own statistics."""
    toy = PlainToy(net, trained=())
    f = torch.cat([toy(images)[0] for images, _ in batches])
    y = torch.cat([labels for _, labels in batches])
    return [f[y == c].mean(0) for c in range(CLASSES)]


def contrast(w, prototypes, f, other, temperature):
    """Of 3B points each is an anchor; its positives are the two others of the same image."""
    nearest = []
    for feature in f.detach():
        cosines = [feature @ p / (feature.norm() * p.norm()) for p in prototypes]
        nearest.append(prototypes[cosines.index(max(cosines))])
    points = torch.cat([torch.stack(nearest), f, other])
    points = (points @ w["0.weight"].T + w["0.bias"]).clamp_min(0) @ w["2.weight"].T + w["2.bias"]
    points = torch.stack([p / p.norm() for p in points])
    similarity = points @ points.T / temperature
    size, losses = len(f), []
    for a in range(3 * size):
        total = torch.cat([similarity[a, :a], similarity[a, a + 1 :]]).exp().sum().log()
        positives = [j for j in range(a % size, 3 * size, size) if j != a]
        losses.append(-sum(similarity[a, j] - total for j in positives) / 2)
    return sum(losses) / len(losses)


class Part:
    """Some of the weights, with an optimiser of their own: those without a gradient (the projector
    in the warm-up) do not step, and Adam does not count."""

    def __init__(self, w, trained, adam, settings):
        self.w, self.trained = w, trained
        self.optimizer = PlainAdam(self, settings["lr"]) if adam else PlainSgd(self, **settings)

    def gradients(self, loss):
        return [self.by_name[name] for name in self.trained]


def descend(parts, loss, lr):
    names = [name for part in parts for name in part.trained]
    gradients = torch.autograd.grad(loss, [parts[0].w[n] for n in names], allow_unused=True)
    gradients = dict(zip(names, gradients, strict=True))
    for part in parts:
        part.by_name, part.optimizer.lr = gradients, lr
        if gradients[part.trained[0]] is not None:
            part.optimizer.step(loss)


def projector(adapter):
    """The adapter's own; without a contrastive term there is none."""
    terms = [term for term in adapter._slots.terms if term.label == "contrastive"]
    return dict(terms[0].projector.named_parameters()) if terms else {}
