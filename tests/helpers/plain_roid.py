"""A plain restatement of what ROID and CMF share."""

import math

import torch
from plain import PlainToy
from toys import CLASSES, KINDS

FLIP = "augment=flip"
# Where all are sure, entropies of float32 differ by little more than rounding, and rescaling them
# makes weights of that: two ways to compute the same are then not the same.
KINDS_OF = {
    torch.float64: KINDS,
    torch.float32: tuple("some" if kind == "all" else kind for kind in KINDS),
}


class PlainRoid:
    """ROID's facts, image by image, over the toy net by hand. `after` moves weights after a step,
    `optimizer` takes it."""

    def __init__(self, net, optimizer, *, after, **settings):
        self.weighting, self.weight, self.correct, self.divisor = True, 1.0, "logits", None
        self.momentum, self.temperature = 0.9, 1 / 3
        self.__dict__ |= settings
        self.toy = PlainToy(net)
        self.start = {name: self.toy.w[name].detach().clone() for name in self.toy.trained}
        self.optimizer, self.after = optimizer(self.toy), after
        self.q = torch.full((CLASSES,), 1 / CLASSES, dtype=net.fc.weight.dtype)
        self.kept = []

    def weights(self, p, h):
        """By index, of those that are kept."""
        if not self.weighting:
            return dict.fromkeys(range(len(p)), 1.0)

        def to_unit(values):
            low, high = min(values), max(values)
            if high - low <= 8 * torch.finfo(p.dtype).eps * max(1, -low, high):
                return [0.0] * len(values)
            return [(value - low) / (high - low) for value in values]

        a = to_unit([1 - float(self.q @ one / (self.q.norm() * one.norm())) for one in p])
        b = to_unit([-float(one) for one in h])
        mean = sum(a) / len(a)
        return {
            i: math.exp(a[i] * b[i] / self.temperature) for i in range(len(a)) if not a[i] < mean
        }

    def loss(self, images, z):
        p = z.softmax(1)
        w = self.weights(p.detach(), -(p * z.log_softmax(1)).sum(1).detach())
        self.q = self.momentum * self.q + (1 - self.momentum) * p.detach().mean(0)
        kept, size = sorted(w), self.divisor or len(images)
        self.kept.append(kept)
        loss = 0.0
        for i in kept:
            r = torch.where(p[i] > 0.99, torch.full_like(p[i], 0.99), p[i])
            loss = loss - w[i] * (r * torch.log(r / (1 - r) + 1e-5)).sum() / size
        if self.weight and len(kept) > 1:
            log_p, log_q = z.log_softmax(1), self.toy(images[kept].flip(3))[1].log_softmax(1)
            for j, i in enumerate(kept):
                both = (p[i] * log_q[j]).sum() + (log_q[j].exp() * log_p[i]).sum()
                loss = loss - self.weight * w[i] * 0.5 * both / size
        return loss

    def corrected(self, z):
        z = z.detach()
        m = z.softmax(1).mean(0)
        s = max(1 / len(z), 1 / CLASSES) / m.max()
        prior = (m + s) / (1 + s * CLASSES)
        if self.correct == "probabilities":
            return (z.softmax(1) * prior / (z.softmax(1) * prior).sum(1, keepdim=True)).log()
        return z * prior if self.correct == "logits" else z

    def __call__(self, images):
        z = self.toy(images)[1]
        self.optimizer.step(self.loss(images, z))
        self.after(self.toy.w, self.start)
        return self.corrected(z)
