"""The toy net with statistics that it keeps, and memories of a stream, written out by hand."""

import math

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
        counts = [len(each) for each in self.lists]
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
        for each in self.lists:
            for item in each:
                item[2] += 1

    def items(self):
        return [item for each in self.lists for item in each]
