"""steady's rule written out by hand, layer by layer."""

import copy
import math

import torch
from torch import nn

from holdfast.engine.network import Network

NORMS = nn.BatchNorm1d, nn.BatchNorm2d


def limit(logarithms, n, first=1):
    """Read off a table of 1, 2, 4, … images, by straight lines in log-log."""
    grid = [math.log(first * 2**k) for k in range(len(logarithms))]
    x = min(max(math.log(n), grid[0]), grid[-1])
    after = next(k for k in range(1, len(grid)) if x <= grid[k])
    (a, b), (low, high) = grid[after - 1 : after + 1], logarithms[after - 1 : after + 1]
    return math.exp(low + (high - low) * (x - a) / (b - a))


def place(m, v, m0, v0, w):
    """A batch as a point, whose squared distance from 0 is its drift."""
    moved = (m - m0) / (v0 + 1e-5).sqrt()
    spread = torch.log((v + 1e-5) / (v0 + 1e-5)) / math.sqrt(2)
    return torch.cat([w.sqrt() * moved, w.sqrt() * spread])


def unexplained(m, v, m0, v0, w, directions):
    """Its drift, less the square of its part along each of the directions."""
    u = place(m, v, m0, v0, w)
    return float((u**2).sum() - sum(float(u @ direction) ** 2 for direction in directions))


def by_width(z, groups):
    """Each image to the group whose normal law on the line through both means is denser there."""
    for _ in range(10):
        line = z[groups[1]].mean(0) - z[groups[0]].mean(0)
        along = z @ line
        own = [along[group] for group in groups]
        laws = [torch.distributions.Normal(t.mean(), t.std(correction=0)) for t in own]
        second = laws[1].log_prob(along) > laws[0].log_prob(along)
        new = [second.logical_not().nonzero().flatten(), second.nonzero().flatten()]
        if min(map(len, new)) < max(2, len(z) / 16):
            break
        groups = new
    return groups


class Plain:
    """A model whose batch norm layers follow the rule by hooks, step by step and by autograd."""

    def __init__(self, net, source, *, split=True):
        self.net = copy.deepcopy(net)
        self.budgets = source.budgets_of(Network(net), lambda: Network(net))
        self.split = self.budgets.split if split else None
        self.source = copy.deepcopy(net)
        self.names = {m: n for n, m in self.net.named_modules() if isinstance(m, NORMS)}
        for layer in self.names:
            layer.register_forward_hook(self.replaced)
        self.uses, self.groups, self.seen = {}, None, {}

    def __call__(self, images):
        self.uses, self.groups, self.seen = {}, None, {}
        self.earlier = {}
        self.first = True
        return self.net(images)

    def replaced(self, layer, inputs, _):
        name, x = self.names[layer], inputs[0]
        use = self.uses.get(name, 0)
        self.uses[name] = use + 1
        point = self.budgets.layers[name][use]
        if self.first:
            self.first = False
            self.groups = self.kinds(x, point) if self.split else [list(range(len(x)))]
        out = torch.zeros_like(x)
        alphas = []
        for number, group in enumerate(self.groups):
            # What the layers before did with these images, in the order in which they ran.
            earlier = self.earlier.setdefault(number, [])
            y, alpha, ratio = self.normalised(
                layer, self.source.get_submodule(name), x[group], point, earlier
            )
            earlier.append(alpha)
            out = out.index_copy(0, torch.tensor(group), y)
            alphas.append((len(group) / len(x), alpha, ratio))
        self.seen.setdefault(name, []).append(alphas)
        return out

    @staticmethod
    def moments(x):
        rows = x.transpose(0, 1).flatten(1)
        m = rows.mean(1)
        return m, ((rows - m[:, None]) ** 2).mean(1)

    @torch.no_grad()
    def beyond(self, x, point):
        """Their drift, in limits."""
        d = unexplained(*self.moments(x), point.mean, point.var, point.weight, point.by_labels)
        return d / limit(point.unexplained_limits, len(x))

    def normalised(self, layer, source, x, point, earlier):
        m, v = self.moments(x)
        ratio = self.beyond(x, point)
        alpha = max(0.0, 1 - 1 / ratio)
        if earlier:
            alpha = max(alpha, 0.75 * sum(earlier) / len(earlier))
        mean = (1 - alpha) * source.running_mean + alpha * m
        var = (1 - alpha) * source.running_var + alpha * v
        shape = [1, -1] + [1] * (x.ndim - 2)
        y = (x - mean.view(shape)) / (var + layer.eps).sqrt().view(shape)
        if layer.weight is not None:
            scale = source.weight.detach() + alpha * (layer.weight - source.weight.detach())
            shift = source.bias.detach() + alpha * (layer.bias - source.bias.detach())
            y = y * scale.view(shape) + shift.view(shape)
        return y, alpha, ratio

    def kinds(self, x, point):
        """Positions of the images of each kind; one list if all are alike, or where the source's
        batches are."""
        n, whole = len(x), [list(range(len(x)))]
        if n < 8 or self.beyond(x, point) <= 1:
            return whole
        x = x.detach().double()
        flat = x.flatten(2) if x.ndim > 2 else x[:, :, None]
        z = torch.cat([flat.mean(2), 0.5 * (flat.var(2, correction=0) + 1e-3).log()], 1)
        w = self.split.weight
        z = (z - self.split.center) / self.split.deviation * torch.cat([w, w]).sqrt()
        centred = z - z.mean(0)
        best, found = 0.0, None
        for direction in torch.linalg.svd(centred).Vh[:3]:
            side = centred @ direction > 0
            for _ in range(10):
                if side.all() or not side.any():
                    break
                one, other = z[~side].mean(0), z[side].mean(0)
                side = ((z - other) ** 2).sum(1) < ((z - one) ** 2).sum(1)
            groups = [side.logical_not().nonzero().flatten(), side.nonzero().flatten()]
            if min(map(len, groups)) < max(2, n / 16):
                continue
            one, other = (z[group].mean(0) for group in groups)
            # Along the line through both means alone.
            line = (other - one) / (other - one).norm()
            within = (torch.where(side[:, None], z - other, z - one) @ line).pow(2).mean()
            far = float(((one - other) ** 2).sum() / within)
            if far > best:
                best, found = far, groups
        if best <= limit(self.split.limits, n, 8):
            return whole
        return sorted(group.tolist() for group in by_width(z, found))
