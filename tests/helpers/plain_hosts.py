"""Hosts written out by hand for plug-ins that reset them, pull them or keep several of them."""

import copy

import torch
from plain import PlainToy, entropy, limit
from plain_methods import PlainDebias, plain_fisher
from toys import images_of, source_batches

LR = 0.002
REDUNDANCY = 0.6
FISHER = 50
EATA = f"eata(lr={LR},redundancy={REDUNDANCY},fisher_weight={FISHER})"
TENT = "tent(lr=0.005)"
DEBIAS = "debias(lambda_ema=0.2,lambda_src=0.5,src_reduction=mean)"
# Hosts by spec, with what they are to the restatement.
HOSTS = {
    TENT: {"lr": 0.005},
    EATA: {"eata": True},
    f"{TENT}+{DEBIAS}": {"lr": 0.005, "debias": True},
    f"{EATA}+{DEBIAS}": {"eata": True, "debias": True},
}


class PlainHost:
    """Tent or EATA, with debias or without; what it has learnt can be read and put back."""

    def __init__(self, net, *, eata=False, debias=False, lr=LR):
        self.toy = PlainToy(net)
        self.lr, self.eata = lr, eata
        dtype = net.fc.weight.dtype
        self.fisher = plain_fisher(net, images_of(source_batches(dtype))) if eata else []
        self.debias = PlainDebias(net, ema=0.2, src=0.5, divisor=12) if debias else None
        self.velocity = {name: torch.zeros_like(self.toy.w[name]) for name in self.toy.trained}
        self.q = None
        self.source = {name: self.toy.w[name].detach().clone() for name in self.toy.trained}
        self.fresh = self.learnt()

    def learnt(self):
        return copy.deepcopy(
            {
                "w": {name: self.toy.w[name].detach() for name in self.toy.trained},
                "velocity": self.velocity,
                "q": self.q,
                "target": self.debias.target if self.debias else None,
            }
        )

    def put(self, learnt):
        learnt = copy.deepcopy(learnt)
        for name, value in learnt["w"].items():
            self.toy.w[name] = value.requires_grad_(True)
        self.velocity, self.q = learnt["velocity"], learnt["q"]
        if self.debias:
            self.debias.target = learnt["target"]

    def reset(self, keep=()):
        """Back to the source, but for some weights."""
        kept = {name: self.toy.w[name].detach().clone() for name in keep}
        self.put({**self.fresh, "w": {**self.fresh["w"], **kept}})

    def objective(self, images):
        """The logits; what drives, None where nothing does; and what holds."""
        features, logits = self.toy(images)
        h, p = entropy(logits), torch.softmax(logits, 1).detach()
        drives = None
        if not self.eata:
            drives = h.mean()
        else:
            keep = [i for i in range(len(h)) if h[i] < limit(0.4, logits)]
            if self.q is not None:
                cosine = [(self.q @ p[i]) / (self.q.norm() * p[i].norm()) for i in range(len(h))]
                keep = [i for i in keep if abs(cosine[i]) < REDUNDANCY]
            if keep:
                mean = p[keep].mean(0)
                self.q = mean if self.q is None else 0.9 * self.q + 0.1 * mean
                weight = [torch.exp(limit(0.4, logits) - h[i].detach()) for i in keep]
                drives = sum(a * h[i] for a, i in zip(weight, keep, strict=True)) / len(keep)
        if self.debias:
            loss = self.debias(features, logits)
            if torch.is_tensor(loss):
                drives = loss if drives is None else drives + loss
        holds = sum(
            FISHER * (f * (self.toy.w[name] - self.source[name]) ** 2).sum()
            for f, name in zip(self.fisher, self.toy.trained, strict=bool(self.fisher))
        )
        return logits, drives, holds

    def descend(self, loss):
        for name, gradient in zip(self.toy.trained, self.toy.gradients(loss), strict=True):
            self.velocity[name] = 0.9 * self.velocity[name] + gradient
            with torch.no_grad():
                self.toy.w[name] -= self.lr * self.velocity[name]

    def __call__(self, images):
        """Answer a batch and learn from it; its logits, and whether a step was taken."""
        logits, drives, holds = self.objective(images)
        if drives is not None:
            self.descend(drives + holds)
        return logits.detach(), drives is not None
