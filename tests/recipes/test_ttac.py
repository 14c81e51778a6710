import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, close
from laws import saved_half_way_goes_on
from plain import NORM_AFFINE, PlainSgd, PlainToy, entropy, limit
from plain_methods import plain_fisher, source_features
from toys import (
    CLASSES,
    FEATURES,
    GAIN,
    KINDS,
    assert_same_state,
    images_of,
    settled_net,
    source_batches,
    state_of,
    stream,
    toy_source,
)

import holdfast
from holdfast.recipes.ttac import inverse

BODY = ("conv1.weight", "conv1.bias", *NORM_AFFINE, "conv2.weight", "conv2.bias")


class RunningToy(PlainToy):
    """The toy net that learns by batch statistics and predicts by running ones."""

    def __init__(self, net, trained):
        super().__init__(net, trained)
        self.running = {
            name: [layer.running_mean.clone(), layer.running_var.clone()]
            for name, layer in (("norm1", net.norm1), ("norm2", net.norm2))
        }

    def normalise(self, x, name, training):
        mean, var = self.running[name]
        if training:
            count = x.numel() // x.shape[1]
            mean = x.mean((0, 2, 3))
            var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
            for place, new in enumerate((mean, var * count / (count - 1))):
                self.running[name][place] = 0.9 * self.running[name][place] + 0.1 * new.detach()
        x = (x - mean[:, None, None]) / (var + 1e-5).sqrt()[:, None, None]
        scale, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        return x * scale[:, None, None] + shift[:, None, None]

    def __call__(self, images, training=True):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.normalise(x, "norm1", training).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.normalise(x, "norm2", training).clamp_min(0).mean((2, 3))
        features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features, features @ w["fc.weight"].T + w["fc.bias"]


class Gaussian:
    """A mean and a covariance; a diagonal one is a matrix of zeros elsewhere."""

    def __init__(self, mean, covariance, count=0):
        self.mean, self.covariance, self.count = mean, covariance, count

    @classmethod
    def of(cls, rows):
        mean = rows.mean(0)
        return cls(mean, sum(torch.outer(f - mean, f - mean) for f in rows) / len(rows))

    def after(self, rows, clip, diagonal):
        """What the rows make of it; gradients go through the rows."""
        count = self.count + len(rows)
        a = 1 / min(count, clip)
        apart = [f - self.mean for f in rows]
        shift = a * sum(apart)
        scatter = sum(torch.outer(d, d) for d in apart)
        covariance = self.covariance + a * (scatter - len(rows) * self.covariance)
        covariance = covariance - torch.outer(shift, shift)
        covariance = torch.diag(torch.diag(covariance)) if diagonal else covariance
        return Gaussian(self.mean + shift, covariance, count)

    def detached(self):
        return Gaussian(self.mean.detach(), self.covariance.detach(), self.count)


def kl(one, other, ridge):
    extra = ridge * torch.eye(FEATURES, dtype=ridge.dtype)
    first, second = one.covariance + extra, other.covariance + extra
    inverse, apart = torch.linalg.inv(second), other.mean - one.mean
    size = torch.trace(inverse @ first) + apart @ inverse @ apart - FEATURES
    return (size + torch.logdet(second) - torch.logdet(first)) / 2


class PlainTtac:
    """The losses of a batch, weighted and summed, after which the batch is taken in.

    seen: the confident labels of each batch; spoke: those with a term.
    """

    def __init__(self, net, *, variant, clip, clip_class, threshold, weight, batches=3):
        self.variant, self.clip, self.clip_class = variant, clip, clip_class
        self.threshold, self.weight = threshold, weight
        dtype = net.fc.weight.dtype
        rows = torch.cat([source_features(net, each) for each, _ in source_batches(dtype, batches)])
        labels = (rows @ net.fc.weight.T + net.fc.bias).argmax(1).tolist()
        self.source = Gaussian.of(rows)
        self.ridge = self.source.covariance.max() / 30
        self.sources = {}
        for c in set(labels):
            mine = Gaussian.of(rows[[i for i, label in enumerate(labels) if label == c]])
            if variant == "imagenet":
                mine.covariance = torch.diag(torch.diag(mine.covariance))
                mine.count = clip_class
            self.sources[c] = mine
        self.targets = dict(self.sources)
        self.target = Gaussian(0 * self.source.mean, 0 * self.source.covariance)
        self.spoke, self.seen = [], []

    def losses(self, features, logits):
        p = torch.softmax(logits, 1).detach()
        labels = [int(row.argmax()) if row.max() > self.threshold else None for row in p]
        self.seen.append({c for c in labels if c is not None})
        total, speaking = 0.0, []
        for c in sorted(self.seen[-1] & self.sources.keys()):
            rows = features[[i for i, label in enumerate(labels) if label == c]]
            new = self.targets[c].after(rows, self.clip_class, self.variant == "imagenet")
            self.targets[c] = new.detached()
            if self.variant == "imagenet" or new.count >= 16:
                speaking.append(c)
                total = total + self.apart(self.sources[c], new)
        if self.variant == "cifar":
            total = total / CLASSES
        self.spoke.append(speaking)
        new = self.target.after(features, self.clip, False)
        self.target = new.detached()
        return self.weight * (total + self.apart(self.source, new))

    def apart(self, source, target):
        return kl(source, target, self.ridge) + kl(target, source, self.ridge)


def restate(net, *, lr, predict="after", **settings):
    toy = RunningToy(net, BODY)
    optimizer, ttac = PlainSgd(toy, lr), PlainTtac(net, **settings)

    def step(images):
        features, logits = toy(images)
        optimizer.step(ttac.losses(features, logits))
        return toy(images, training=False)[1] if predict == "after" else logits

    return step, toy, ttac


def restate_on_eata(net, *, lr, redundancy, fisher_weight, **settings):
    toy = PlainToy(net)
    optimizer, ttac = PlainSgd(toy, lr), PlainTtac(net, **settings)
    fisher = plain_fisher(net, images_of(source_batches(net.fc.weight.dtype)))
    start = [toy.w[name].detach().clone() for name in toy.trained]
    toy.q, toy.kept = None, []

    def step(images):
        features, logits = toy(images)
        h, p, e0 = entropy(logits), torch.softmax(logits, 1).detach(), limit(0.4, logits)
        keep = [i for i in range(len(images)) if h[i] < e0]
        if toy.q is not None:
            cosine = [(toy.q @ each) / (toy.q.norm() * each.norm()) for each in p]
            keep = [i for i in keep if abs(cosine[i]) < redundancy]
        loss = ttac.losses(features, logits)
        if keep:
            mean = p[keep].mean(0)
            toy.q = mean if toy.q is None else 0.9 * toy.q + 0.1 * mean
            loss = loss + sum(torch.exp(e0 - h[i].detach()) * h[i] for i in keep) / len(keep)
        for f, s, name in zip(fisher, start, toy.trained, strict=True):
            loss = loss + fisher_weight * (f * (toy.w[name] - s) ** 2).sum()
        optimizer.step(loss)
        toy.kept.append(len(keep))
        return logits

    return step, toy, ttac


def compare(spec, build, dtype, kinds=KINDS, **settings):
    """Logits, weights and running statistics after every batch."""
    net = settled_net(dtype)
    batches = source_batches(dtype, settings.get("batches", 3))
    adapter = holdfast.adapt(net, spec, source=holdfast.Source.from_loader(net, batches))
    step, toy, ttac = build(net, **settings)
    start = {name: weight.detach().clone() for name, weight in toy.w.items()}
    for index, images in enumerate(stream(kinds, dtype, last=5)):
        close(adapter(images), step(images), dtype, f"logits of batch {index}")
        frozen = adapter.frozen()
        for name, weight in frozen.named_parameters():
            close(weight, toy.w[name], dtype, f"{name} after batch {index}")
        assert adapter.last.stepped and "global" in adapter.last.losses
        assert bool(adapter.last.losses.get("classes")) == bool(ttac.spoke[-1])
        after = settings.get("predict") == "after"
        assert (adapter.last.forwards, adapter.last.backwards) == (2 if after else 1, 1)
        if after:
            for name, values in toy.running.items():
                for kind, value in zip(("mean", "var"), values, strict=True):
                    got = frozen.get_buffer(f"{name}.running_{kind}")
                    close(got, value, dtype, f"running {kind} of {name} after batch {index}")
    for name in set(toy.trained) - {"conv1.bias", "conv2.bias"}:  # batch norm takes these away
        moved = (toy.w[name] - start[name]).abs().max().item()
        assert moved > 1e-4, f"{name} moved by {moved:.1e}"
    assert any(not each for each in ttac.spoke)
    assert sum(len(each) > 1 for each in ttac.spoke) > 2
    return adapter, toy, ttac


def written(**settings):
    return ",".join(f"{name}={value}" for name, value in settings.items())


# No more images of a class in a batch than clip_class, or covariances might turn negative.
IMAGENET = {"variant": "imagenet", "clip": 40, "clip_class": 16, "threshold": 0.5, "weight": 0.05}
CIFAR = {"variant": "cifar", "clip": 200, "clip_class": 20, "threshold": 0.5, "weight": 0.5}
# With a count from 0 and a term from 16 images on, more has to be seen of each class.
RICH = ("some", "none", "all", "all", "all", "some", "all", "all", "all", "all", "all", "some")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("predict", ["after", "before"])
def test_imagenet(predict, dtype):
    spec = f"ttac(lr=1e-3,predict={predict},{written(**IMAGENET)})"
    adapter, _, _ = compare(spec, restate, dtype, lr=1e-3, predict=predict, **IMAGENET)
    for name in ("fc.weight", "fc.bias"):
        head = settled_net(dtype).get_parameter(name)
        assert torch.equal(adapter.model.get_parameter(name), head)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("predict", ["after", "before"])
def test_cifar(predict, dtype):
    spec = f"ttac(lr=1e-4,predict={predict},{written(**CIFAR)})"
    _, _, ttac = compare(spec, restate, dtype, RICH, lr=1e-4, predict=predict, **CIFAR)
    assert any(set(spoke) < seen for spoke, seen in zip(ttac.spoke, ttac.seen, strict=True))
    assert max(target.count for target in ttac.targets.values()) > 20


@pytest.mark.parametrize("threshold", [0.9, 0.35])
def test_threshold(threshold):
    settings = IMAGENET | {"threshold": threshold}
    spec = f"ttac(lr=1e-3,{written(**settings)})"
    compare(spec, restate, torch.float64, lr=1e-3, predict="after", **settings)


@pytest.mark.parametrize("variant", [IMAGENET, CIFAR])
def test_classes_without_source_images_are_left_out(variant):
    settings = variant | {"batches": 1}
    spec = f"ttac(lr=1e-4,{written(**variant)})"
    _, _, ttac = compare(spec, restate, torch.float64, RICH, lr=1e-4, predict="after", **settings)
    assert any(seen - ttac.sources.keys() for seen in ttac.seen)


def test_defaults_are_the_papers():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("ttac", preset=preset).host
        assert (host.clip, host.clip_class, host.threshold) == (1280, 64, 0.9)
        assert (host.optimizer, host.momentum, host.select) == ("sgd", 0.9, "body")
        small = preset == "cifar100-c"
        assert (host.variant, host.weight) == (("cifar", 0.5) if small else ("imagenet", 0.05))
        assert (host.lr, host.predict) == (1e-5 if small else 2e-4, "after")


def test_predict_is_by_running_statistics_and_changes_nothing():
    spec = f"ttac(lr=1e-3,{written(**IMAGENET)})"
    settings = {"lr": 1e-3, "predict": "after", **IMAGENET}
    adapter, toy, _ = compare(spec, restate, torch.float64, **settings)
    before = state_of(adapter)
    images = source_batches(torch.float64)[0][0]
    _, expected = toy(images, training=False)
    close(adapter.predict(images), expected, torch.float64, "predict")
    close(adapter.frozen()(images[:1]), expected[:1], torch.float64, "frozen")
    assert_same_state(state_of(adapter), before)


@pytest.mark.parametrize("variant", ["imagenet", "cifar"])
def test_a_divergence_is_never_negative(variant):
    """More images of a class in a batch than the clip, and more images than the global clip."""
    net = settled_net(torch.float64)
    spec = f"ttac(lr=0,variant={variant},clip=2,clip_class=1,threshold=0.3)"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    for images in stream(RICH, torch.float64, last=5):
        adapter(images)
        assert all(loss >= 0 for loss in adapter.last.losses.values())
    assert adapter.last.losses["classes"] > 0


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("ttac", "kinds"), [(IMAGENET, KINDS), (CIFAR, RICH)])
def test_on_eata(ttac, kinds, dtype):
    eata = {"lr": 1e-3, "redundancy": 0.6, "fisher_weight": 50}
    spec = f"eata({written(**eata)})+ttac({written(**ttac)})"
    _, toy, _ = compare(spec, restate_on_eata, dtype, kinds, **eata, **ttac)
    assert any(count == 0 for count in toy.kept) and any(toy.kept)


@pytest.mark.parametrize("variant", ["imagenet", "cifar"])
def test_of_weight_0_on_eata_it_is_not_there(variant):
    net = settled_net(torch.float32)
    specs = "eata(redundancy=0.6)", f"eata(redundancy=0.6)+ttac(weight=0,variant={variant})"
    eata, both = (holdfast.adapt(net, spec, source=toy_source(net)) for spec in specs)
    for images in stream(last=5):
        assert torch.equal(eata(images), both(images))
        assert_same_state(state_of(eata), state_of(both))


@pytest.mark.parametrize("spec", ["ttac(variant=cifar)", "eata+ttac(threshold=0.5)"])
def test_saved_in_the_middle_goes_on_without_a_source(spec, tmp_path):
    net = settled_net(torch.float32)
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    saved_half_way_goes_on(adapter, net, tmp_path / "state", stream(last=5))


def test_gradients_of_the_inverse_are_right():
    """Its backward is written by hand; against numerical ones, for symmetric positive matrices."""
    roots = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def inverse_of_square(root):
        return inverse(root @ root.mT + 0.5 * torch.eye(4, dtype=torch.float64))

    assert torch.autograd.gradcheck(inverse_of_square, roots.requires_grad_())
