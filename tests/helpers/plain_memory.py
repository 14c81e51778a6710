"""The toy net with statistics that it keeps, and memories of a stream, written out by hand."""

import math

import torch
import torch.nn.functional as F
from plain import NORM_AFFINE, PlainToy
from toys import CLASSES, GAIN


class RobustToy(PlainToy):
    """The toy net whose norm layers keep statistics of their own, from the source's onwards."""

    def __init__(self, net, momentum, trained=NORM_AFFINE):
        super().__init__(net, trained)
        self.momentum = momentum
        self.stored = {
            name: (layer.running_mean.clone(), layer.running_var.clone())
            for name, layer in (("norm1", net.norm1), ("norm2", net.norm2))
        }

    def normalise(self, x, name, training):
        mean, var = self.stored[name]
        if training:
            own = x.mean((0, 2, 3))
            spread = ((x - own[:, None, None]) ** 2).mean((0, 2, 3))
            mean = (1 - self.momentum) * mean + self.momentum * own
            var = (1 - self.momentum) * var + self.momentum * spread
            self.stored[name] = mean.detach(), var.detach()
        x = (x - mean[:, None, None]) / (var + 1e-5).sqrt()[:, None, None]
        scale, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        return x * scale[:, None, None] + shift[:, None, None]

    def logits(self, images, training):
        return self.seen(images, training)[1]

    def seen(self, images, training):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.normalise(x, "norm1", training).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.normalise(x, "norm2", training).clamp_min(0).mean((2, 3))
        features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features, features @ w["fc.weight"].T + w["fc.bias"]


class PlainTimelyMemory:
    """One list of [image, uncertainty, age] for each class."""

    def __init__(self, capacity, lambda_time, lambda_uncertainty):
        self.capacity, self.lambdas = capacity, (lambda_time, lambda_uncertainty)
        self.lists = [[] for _ in range(CLASSES)]
        self.seen = {"free": 0, "majority": 0, "own": 0, "dropped": 0}

    def badness(self, uncertainty, age):
        time, doubt = self.lambdas
        return time / (1 + math.exp(-age / self.capacity)) + doubt * uncertainty / math.log(CLASSES)

    def make_room(self, label, newcomer):
        counts = [len(group) for group in self.lists]
        if counts[label] < self.capacity / CLASSES:
            if sum(counts) < self.capacity:
                return "free"
            rule, classes = "majority", [c for c in range(CLASSES) if counts[c] == max(counts)]
        else:
            rule, classes = "own", [label]
        worst = None
        for c in classes:
            for place, (_, uncertainty, age) in enumerate(self.lists[c]):
                score = self.badness(uncertainty, age)
                if worst is None or score >= worst[0]:
                    worst = score, c, place
        if worst[0] > self.badness(newcomer, 0):
            del self.lists[worst[1]][worst[2]]
            return rule
        return "dropped"

    def add(self, image, label, uncertainty):
        rule = self.make_room(label, uncertainty)
        self.seen[rule] += 1
        if rule != "dropped":
            self.lists[label].append([image, uncertainty, 0])
        for group in self.lists:
            for item in group:
                item[2] += 1

    def items(self):
        return [item for group in self.lists for item in group]


class StoredToy(PlainToy):
    """The toy net that predicts by running statistics, and trains by those of the images it is
    given, of which the running ones take a share; k: corrected for each image, as NOTE does."""

    def __init__(self, net, momentum, k=None, trained=NORM_AFFINE):
        super().__init__(net, trained)
        self.momentum, self.k = momentum, k
        self.stored = {
            name: (layer.running_mean.clone(), layer.running_var.clone())
            for name, layer in (("norm1", net.norm1), ("norm2", net.norm2))
        }

    def normalise(self, x, name, training, record):
        mean, var = self.stored[name]
        if training:
            mean = x.mean((0, 2, 3))
            unbiased = x.transpose(0, 1).flatten(1).var(1, correction=1)
            if record:
                old, m = self.stored[name], self.momentum
                new = mean.detach(), unbiased.detach()
                self.stored[name] = tuple(
                    (1 - m) * o + m * n for o, n in zip(old, new, strict=True)
                )
            var = x.transpose(0, 1).flatten(1).var(1, correction=0)
            if self.k is not None:
                var = unbiased
        scale, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        return (
            torch.stack([self.one(image, mean, var) for image in x]) * scale[:, None, None]
            + shift[:, None, None]
        )

    def one(self, image, mean, var):
        if self.k is not None:
            n = image[0].numel()
            own = image.mean((1, 2))
            spread = ((image - own[:, None, None]) ** 2).sum((1, 2)) / (n - 1)
            s_mean, s_var = ((var + 1e-5) / n).sqrt(), (var + 1e-5) * (2 / (n - 1)) ** 0.5
            mean, var = (
                centre + torch.sign(away) * (away.abs() - self.k * s).clamp_min(0)
                for centre, away, s in ((mean, own - mean, s_mean), (var, spread - var, s_var))
            )
            var = var.clamp_min(0)
        return (image - mean[:, None, None]) / (var + 1e-5).sqrt()[:, None, None]

    def logits(self, images, training, record=True):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.normalise(x, "norm1", training, record).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.normalise(x, "norm2", training, record).clamp_min(0).mean((2, 3))
        features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features @ w["fc.weight"].T + w["fc.bias"]


class PlainBalancedMemory:
    """One list of (when it came, image) for each class; of the first largest the oldest goes."""

    def __init__(self, capacity):
        self.capacity, self.count = capacity, 0
        self.lists = [[] for _ in range(CLASSES)]
        self.met = {"room": 0, "largest": 0, "own": 0}

    def add(self, image, label):
        sizes = [len(group) for group in self.lists]
        if sum(sizes) < self.capacity:
            self.met["room"] += 1
        elif sizes[label] == max(sizes):
            self.met["own"] += 1
            self.lists[label].pop(0)
        else:
            self.met["largest"] += 1
            self.lists[sizes.index(max(sizes))].pop(0)
        self.lists[label].append((self.count, image))

    def items(self):
        """By the order in which they came."""
        return sorted((item for group in self.lists for item in group), key=lambda item: item[0])


class PlainFifo:
    def __init__(self, capacity):
        self.capacity, self.count, self.kept = capacity, 0, []

    def add(self, image, label):
        self.kept = [*self.kept, (self.count, image)][-self.capacity :]

    def items(self):
        return self.kept


def smoothed_entropy(logits):
    p = torch.softmax(logits, 1)
    return -(p * torch.log(p + 1e-6)).sum(1)
