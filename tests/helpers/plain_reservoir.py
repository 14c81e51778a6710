"""ReservoirTTA written out by hand, around a plain host."""

import copy
import math

import torch
import torch.nn.functional as F
from plain import NORM_AFFINE, entropy
from toys import source_batches

# Images in a batch, of the source and of the stream.
SIZE = 14


def style(net, images):
    """Of the toy net's two convolutions, before ReLU; the source's statistics in between."""
    with torch.no_grad():
        first = F.conv2d(images, net.conv1.weight, net.conv1.bias, padding=1)
        second = F.conv2d(
            net.norm1(first).clamp_min(0), net.conv2.weight, net.conv2.bias, stride=2, padding=1
        )
    variances = []
    for x in (first, second):
        flat = x.movedim(1, 0).flatten(1)
        mean = flat.mean(1, keepdim=True)
        variances.append(torch.log(((flat - mean) ** 2).sum(1) / (flat.shape[1] - 1)))
    return torch.cat(variances)


class PlainReservoir:
    def __init__(
        self,
        host,
        net,
        *,
        models=3,
        buffer=6,
        quantile=0.5,
        start="mi",
        ensemble=True,
        evict="none",
    ):
        self.host, self.net, self.models, self.buffer = host, net, models, buffer
        self.start, self.ensemble, self.evict = start, ensemble, evict
        known = [style(net, images) for images, _ in source_batches(net.fc.weight.dtype)]
        # 1,000 batches: the first of the three comes once more than the others.
        self.mean = (334 * known[0] + 333 * known[1] + 333 * known[2]) / 1000
        apart = sorted((known[i] - known[j]).norm().item() for i, j in ((0, 1), (0, 2), (1, 2)))
        pairs = {(0, 1): 334 * 333, (0, 2): 334 * 333, (1, 2): 333 * 333}
        every = sorted(
            d
            for (i, j), count in pairs.items()
            for d in [(known[i] - known[j]).norm().item()] * count
        )
        at = quantile * (len(every) - 1)
        low = math.floor(at)
        self.limit = every[low] + (at - low) * (every[min(low + 1, len(every) - 1)] - every[low])
        assert apart[0] <= self.limit <= apart[-1]
        self.delta = [torch.zeros_like(self.mean)]
        self.bank = [host.learnt()]
        self.used, self.time = [0], 0
        self.rows, self.events = [], []
        self.fresh_adam()

    def fresh_adam(self):
        self.first = [torch.zeros_like(self.mean) for _ in self.delta]
        self.second = [torch.zeros_like(self.mean) for _ in self.delta]
        self.count = 0

    def distances(self, s):
        return [(s - self.mean - d).norm() for d in self.delta]

    def open(self, images, s):
        full = len(self.bank) == self.models
        new = copy.deepcopy(self.host.fresh)
        if self.start == "mi":
            scores = []
            for model in self.bank:
                self.host.put(model)
                with torch.no_grad():
                    logits = self.host.toy(images)[1]
                p = torch.softmax(logits, 1).mean(0)
                scores.append((entropy(logits).mean() + (p * torch.log(p)).sum()).item())
            best = copy.deepcopy(self.bank[scores.index(min(scores))])
            new |= {"w": best["w"], "velocity": best["velocity"]}
        if full:
            slot = self.used.index(min(self.used))
            self.bank[slot], self.delta[slot] = new, s - self.mean
        else:
            self.bank.append(new)
            self.delta.append(s - self.mean)
            self.used.append(0)
        self.events.append("evicted" if full else "opened")
        self.fresh_adam()

    def adam(self, rows):
        delta = torch.stack(self.delta).requires_grad_(True)
        w = torch.stack(
            [
                torch.softmax(-torch.stack([_norm(r - self.mean - d) for d in delta]), 0)
                for r in rows
            ]
        )
        mean = w.mean(0)
        loss = -(w * torch.log(w)).sum(1).mean() + (mean * torch.log(mean + 1e-8)).sum()
        (gradient,) = torch.autograd.grad(loss, delta)
        self.count += 1
        for k, g in enumerate(gradient):
            self.delta[k] = self.delta[k] * (1 - 1e-4 * 0.01)
            self.first[k] = 0.9 * self.first[k] + 0.1 * g
            self.second[k] = 0.999 * self.second[k] + 0.001 * g * g
            m = self.first[k] / (1 - 0.9**self.count)
            v = self.second[k] / (1 - 0.999**self.count)
            self.delta[k] = self.delta[k] - 1e-4 * m / (v.sqrt() + 1e-8)
        return w[-1].detach()

    def __call__(self, images):
        s = style(self.net, images)
        may = len(self.bank) < self.models or self.evict == "idle"
        if len(images) == SIZE and may and min(self.distances(s)) > self.limit:
            self.open(images, s)
        w = self.adam([*self.rows, s])
        k = int(w.argmax())
        self.events.append(k)
        if len(self.rows) < len(self.bank) * self.buffer / self.models:
            self.rows.append(s)
        else:  # fifo, which needs no draw
            self.rows = [*self.rows[1:], s]
        logits = None
        if self.ensemble:
            self.host.put(self.bank[k])
            for name in NORM_AFFINE:
                mixed = sum(a * model["w"][name] for a, model in zip(w, self.bank, strict=True))
                self.host.toy.w[name] = mixed.requires_grad_(True)
            with torch.no_grad():
                logits = self.host.toy(images)[1]
        self.host.put(self.bank[k])
        own, _ = self.host(images)
        self.bank[k] = self.host.learnt()
        self.time += 1
        self.used[k] = self.time
        return own if logits is None else logits


def _norm(x):
    """Its gradient at 0 is 0."""
    square = (x * x).sum()
    return square.sqrt() if square > 0 else square * 0
