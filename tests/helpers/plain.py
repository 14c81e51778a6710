"""Plain restatements: the toy net, optimisers and losses written out by hand, sharing no code with
the package. Tests of methods build on these."""

import copy
import math

import torch
import torch.nn.functional as F
from toys import GAIN

NORM_AFFINE = ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias")


def batch_norm(x, scale, shift):
    mean = x.mean((0, 2, 3), keepdim=True)
    var = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]


class PlainToy:
    """The toy net with batch statistics, from a dictionary of weights; `trained` ones need grad."""

    def __init__(self, net, trained=NORM_AFFINE):
        self.w = {name: t.detach().clone() for name, t in copy.deepcopy(net).named_parameters()}
        self.trained = trained
        for name in trained:
            self.w[name].requires_grad_(True)

    def __call__(self, images):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = batch_norm(x, w["norm1.weight"], w["norm1.bias"]).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = batch_norm(x, w["norm2.weight"], w["norm2.bias"]).clamp_min(0).mean((2, 3))
        features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features, features @ w["fc.weight"].T + w["fc.bias"]

    def gradients(self, loss):
        return torch.autograd.grad(loss, [self.w[name] for name in self.trained])


class PlainSgd:
    def __init__(self, toy, lr, momentum=0.9, nesterov=False):
        self.toy, self.lr, self.momentum, self.nesterov = toy, lr, momentum, nesterov
        self.velocity = {name: torch.zeros_like(toy.w[name]) for name in toy.trained}

    def step(self, loss):
        self.apply(self.toy.gradients(loss))

    def apply(self, gradients):
        for name, gradient in zip(self.toy.trained, gradients, strict=True):
            self.velocity[name] = self.momentum * self.velocity[name] + gradient
            move = self.velocity[name]
            if self.nesterov:
                move = gradient + self.momentum * move
            with torch.no_grad():
                self.toy.w[name] -= self.lr * move


class PlainAdam:
    def __init__(self, toy, lr, beta=0.9):
        self.toy, self.lr, self.beta, self.count = toy, lr, beta, 0
        self.first = {name: torch.zeros_like(toy.w[name]) for name in toy.trained}
        self.second = {name: torch.zeros_like(toy.w[name]) for name in toy.trained}

    def step(self, loss):
        self.apply(self.toy.gradients(loss))

    def apply(self, gradients):
        self.count += 1
        for name, g in zip(self.toy.trained, gradients, strict=True):
            self.first[name] = self.beta * self.first[name] + (1 - self.beta) * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g * g
            mean = self.first[name] / (1 - self.beta**self.count)
            square = self.second[name] / (1 - 0.999**self.count)
            with torch.no_grad():
                self.toy.w[name] -= self.lr * mean / (square.sqrt() + 1e-8)


def entropy(logits):
    p = torch.softmax(logits, 1)
    return -(p * torch.log(p)).sum(1)


def limit(factor, logits):
    return factor * math.log(logits.shape[1])
