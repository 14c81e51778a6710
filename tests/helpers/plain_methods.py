"""What restatements of several methods have in common."""

import torch
from plain import PlainToy, entropy, limit
from toys import CLASSES, GAIN, source_batches, toy_net

ALL = tuple(name for name, _ in toy_net().named_parameters())
# A bias in front of batch norm has no gradient.
MOVING = tuple(name for name in ALL if name not in ("conv1.bias", "conv2.bias"))
WARM = 8  # steps of a warm-up over 8 · 14 images


def compared(spec):
    """Adam makes steps of rounding where there is no gradient, different ones on each machine."""
    return MOVING if "adam" in spec else ALL


def rmt(**settings):
    """Small rates: the toy net is steep, and rounding in float32 grows with them."""
    base = {"lr": 0.00005, "warmup_samples": 0, "teacher_momentum": 0.9, "augment": "flip"}
    return f"rmt({','.join(f'{name}={value}' for name, value in (base | settings).items())})"


def odd(call):
    return call % 2 == 1


def source_features(net, images):
    """By the running statistics the net came with."""
    with torch.no_grad():
        x = net.norm1(net.conv1(images)).relu()
        x = net.norm2(net.conv2(x)).relu().mean((2, 3))
        return x * (GAIN * images.mean((1, 2, 3)))[:, None]


def plain_source_prototypes(net, batches):
    """Class means of raw features by true label; the source's running statistics."""
    f = torch.cat([source_features(net, images) for images, _ in batches])
    y = torch.cat([labels for _, labels in batches])
    return torch.stack([f[y == c].mean(0) for c in range(CLASSES)])


def plain_fisher(net, batches):
    """Mean over batches of the squared gradient of the batch-mean CE against own labels."""
    toy = PlainToy(net)
    total = [torch.zeros_like(toy.w[name]) for name in toy.trained]
    for images in batches:
        _, logits = toy(images)
        chosen = torch.log_softmax(logits, 1).gather(1, logits.argmax(1)[:, None])
        gradients = toy.gradients(-chosen.mean())
        total = [t + g * g for t, g in zip(total, gradients, strict=True)]
    return [t / len(batches) for t in total]


def soft_ce(target, logits):
    """−Σ p log q, an image each."""
    return -(torch.softmax(target, 1) * torch.log_softmax(logits, 1)).sum(1)


def symmetric_ce(logits, target):
    return 0.5 * soft_ce(target, logits) + 0.5 * soft_ce(logits, target)


def follow_teacher(teacher, student, momentum):
    for name in ALL:
        own = student.w[name].detach()
        teacher.w[name] = momentum * teacher.w[name] + (1 - momentum) * own


class PlainDebias:
    """L_ema and L_src of the reliable images, one at a time; prototypes move when asked."""

    def __init__(self, net, *, ema, src, divisor):
        self.ema, self.src, self.divisor = ema, src, divisor
        self.source = plain_source_prototypes(net, source_batches(net.fc.weight.dtype))
        self.target = [row / row.norm() for row in net.fc.weight.detach().clone()]

    def __call__(self, features, logits):
        h, label = entropy(logits), logits.argmax(1)
        reliable = [i for i in range(len(h)) if h[i] < limit(0.4, logits)]
        if not reliable:
            return 0
        unit = torch.stack([p / p.norm() for p in self.target])
        loss = 0
        for i in reliable:
            ema = -torch.log_softmax(unit @ features[i], 0)[label[i]]
            src = ((self.source[label[i]] - features[i]) ** 2).sum() / self.divisor
            loss = loss + (self.ema * ema + self.src * src) / len(reliable)
        for c in range(CLASSES):
            of_class = [features[i].detach() for i in reliable if label[i] == c]
            if of_class:
                mean = sum(of_class) / len(of_class)
                self.target[c] = 0.996 * self.target[c] + 0.004 * mean / mean.norm()
        return loss
