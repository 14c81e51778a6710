"""MEMO beside a plain restatement, image by image."""

import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, close
from running import run
from toys import GAIN, assert_same_state, group_norm, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.explain.card import card

# Views 1, 3, … are mirrored, the others are the image: what `alternate` does.
VIEWS = 3


class Plain:
    """The toy net, all of it in one dictionary; no gradient goes through the batch's share."""

    def __init__(self, net):
        self.source = {name: t.detach().clone() for name, t in net.state_dict().items()}
        self.trained = [name for name, _ in net.named_parameters()]
        self.restore()

    def restore(self):
        self.w = {name: t.clone() for name, t in self.source.items()}
        for name in self.trained:
            self.w[name].requires_grad_(True)
        self.velocity = dict.fromkeys(self.trained, 0)

    def norm(self, x, name, share):
        w, rows = self.w, x.detach().transpose(0, 1).flatten(1)
        mean, var = rows.mean(1), rows.var(1, correction=1)
        mean = (1 - share) * w[f"{name}.running_mean"] + share * mean
        var = (1 - share) * w[f"{name}.running_var"] + share * var
        y = (x - mean[:, None, None]) / (var + 1e-5).sqrt()[:, None, None]
        return y * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]

    def features(self, images, share):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.norm(x, "norm1", share).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.norm(x, "norm2", share).clamp_min(0).mean((2, 3))
        return x * (GAIN * images.mean((1, 2, 3)))[:, None]

    def __call__(self, images, share):
        return self.features(images, share) @ self.w["fc.weight"].T + self.w["fc.bias"]

    def descend(self, loss, lr, momentum, nesterov):
        found = torch.autograd.grad(loss, [self.w[name] for name in self.trained])
        for name, gradient in zip(self.trained, found, strict=True):
            self.velocity[name] = momentum * self.velocity[name] + gradient
            move = self.velocity[name]
            move = gradient + momentum * move if nesterov else move
            with torch.no_grad():
                self.w[name] -= lr * move


def answers(net, images, *, share, steps=1, lr=0.002, momentum=0.9, nesterov=True, more=None):
    """Of each image by itself."""
    toy, rows = Plain(net), []
    for image in images[:, None]:
        toy.restore()
        for _ in range(steps):
            # A fresh start, so that each image begins with view 1; another step goes on.
            first = 1 + VIEWS * _
            views = [image.flip(3) if k % 2 else image for k in range(first, first + VIEWS)]
            views = torch.cat(views)
            mean = torch.softmax(toy(views, share), 1).mean(0)
            loss = -(mean * torch.log(mean)).sum()
            if more is not None:
                loss = loss + more(toy, views, share)
            toy.descend(loss, lr, momentum, nesterov)
        rows.append(toy(image, share).detach())
    return torch.cat(rows)


BASE = f"augment=alternate,views={VIEWS},lr=0.002"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("settings", "as_restated"),
    [
        ("", {"share": 1 / 17}),
        ("steps=2", {"share": 1 / 17, "steps": 2}),
        ("alpha=0.4,momentum=0", {"share": 0.4, "momentum": 0.0, "nesterov": False}),
        ("prior=3,nesterov=false,steps=2", {"share": 0.25, "nesterov": False, "steps": 2}),
    ],
)
def test_memo(settings, as_restated, dtype):
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, f"memo({BASE},{settings})".replace(",)", ")"))
    fresh = state_of(adapter)
    moved = 0.0
    for images in stream(dtype=dtype, last=5):
        got = adapter(images)
        close(got, answers(net, images, **as_restated), dtype, "logits")
        assert adapter.last.stepped
        moved = max(moved, float((got - adapter.predict(images)).abs().max()))
    assert moved > 0.01
    # Nothing stays but counters, and what frozen() averages.
    counters = ("batches", "watch/", "activity/", "health/", "draws", "statistics/")
    for name, tensor in state_of(adapter).items():
        assert name.startswith(counters) or torch.equal(tensor, fresh[name])
    steps = as_restated.get("steps", 1)
    assert adapter.last.forwards == 5 * (steps + 1) and adapter.last.backwards == 5 * steps
    assert adapter.last.images == {"marginal": 5 * steps}


def test_a_first_step_of_nesterov_is_nearly_two():
    """1.9·lr·g after a fresh start, which momentum=0 does not have."""
    net, images = toy_net(dtype=torch.float64), stream(("some",), torch.float64)[0][:4]
    nesterov = holdfast.adapt(net, f"memo({BASE})")(images)
    plain = holdfast.adapt(net, f"memo({BASE.replace('0.002', '0.0038')},momentum=0)")(images)
    torch.testing.assert_close(nesterov, plain, rtol=0, atol=1e-10)


def test_an_image_does_not_depend_on_its_neighbours():
    net, images = toy_net(dtype=torch.float64), stream(("some",), torch.float64)[0]
    whole, single = (holdfast.adapt(net, f"memo({BASE})") for _ in range(2))
    expected = torch.cat([single(image[None]) for image in images])
    torch.testing.assert_close(whole(images), expected, rtol=0, atol=1e-8)
    # Nor in a prediction, or in what is exported with the rule.
    apart = torch.cat([single.predict(image[None]) for image in images])
    torch.testing.assert_close(whole.predict(images), apart, rtol=0, atol=1e-8)
    exported = whole.frozen(statistics="batch")
    torch.testing.assert_close(exported(images), apart, rtol=0, atol=1e-8)
    torch.testing.assert_close(Plain(net)(images[3:4], 1 / 17).detach(), apart[3:4])


def test_frozen_has_the_sources_weights_and_the_recent_average_of_statistics():
    """Of each image as it was predicted; with a rate of 0, by the source's weights."""
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, f"memo({BASE.replace('0.002', '0')})")
    batches = stream(("some", "all"), torch.float64)
    run(adapter, batches)
    frozen = adapter.frozen()
    for name, weight in frozen.named_parameters():
        assert torch.equal(weight, net.get_parameter(name))
    average = net.norm1.running_var.clone()
    for image in torch.cat(batches)[:, None]:
        rows = net.conv1(image).detach().transpose(0, 1).flatten(1)
        used = 16 / 17 * net.norm1.running_var + 1 / 17 * rows.var(1)
        average = 16 / 17 * average + 1 / 17 * used
    torch.testing.assert_close(frozen.norm1.running_var, average)


def test_augmix_draws_each_view_of_each_image_anew():
    net, (images,) = toy_net(), stream(("some",))
    adapter, other = (holdfast.adapt(net, "memo(views=4,lr=0.01)", seed=seed) for seed in (0, 1))
    views = adapter._slots.learn.view.made(images[:1])
    assert views.shape == (4, 3, 8, 8)
    assert len({tuple(view.flatten().tolist()) for view in views}) == 4
    twice = images[:1].repeat(2, 1, 1, 1)
    one, two = adapter(twice)
    assert not torch.equal(one, two)
    assert not torch.equal(other(twice)[0], one)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_debias_sees_the_views_from_the_source_on(dtype):
    """With prototypes that are the head's rows for each image anew, and those of the source."""
    net = toy_net(dtype=dtype)
    source = toy_source(net)
    spec = f"memo({BASE},steps=2)+debias(lambda_ema=0.5,lambda_src=0.1,filter=false,alpha=0.5)"
    adapter = holdfast.adapt(net, spec, source=source)
    means = adapter._slots.terms[2].prototypes
    protos = {}

    def more(toy, views, share):
        if torch.equal(toy.w["conv1.weight"].detach(), toy.source["conv1.weight"]):
            protos["P"] = F.normalize(toy.source["fc.weight"], dim=1)
        features = toy.features(views, share)
        logits = features @ toy.w["fc.weight"].T + toy.w["fc.bias"]
        labels = logits.argmax(1)
        ema = F.cross_entropy(features @ F.normalize(protos["P"], dim=1).T, labels)
        src = ((means[labels] - features) ** 2).sum(1).mean() / 1024
        for label in labels.unique():
            mean = F.normalize(features[labels == label].detach().mean(0), dim=0)
            protos["P"][label] = 0.5 * protos["P"][label] + 0.5 * mean
        return 0.5 * ema + 0.1 * src

    for images in stream(("some", "all", "none"), dtype, last=3):
        expected = answers(net, images, share=1 / 17, steps=2, more=more)
        close(adapter(images), expected, dtype, "logits")
    assert adapter.last.losses.keys() == {"marginal", "ema", "src"}


def test_a_net_with_group_norm_mixes_nothing():
    net = toy_net(group_norm, dtype=torch.float64)
    images = stream(("some",), torch.float64)[0][:3]
    adapter = holdfast.adapt(net, f"memo({BASE},momentum=0)")
    rows = []
    for image in images[:, None]:
        one = toy_net(group_norm, dtype=torch.float64)
        mean = one(torch.cat([image.flip(3), image, image.flip(3)])).softmax(1).mean(0)
        torch.special.entr(mean).sum().backward()
        with torch.no_grad():
            for weight in one.parameters():
                weight -= 0.002 * weight.grad
            rows.append(one(image))
    torch.testing.assert_close(adapter(images), torch.cat(rows), rtol=0, atol=1e-8)


def test_presets_and_card():
    for preset, lr, views in (
        (None, 2.5e-4, 64),
        ("imagenet-c", 2.5e-4, 64),
        ("cifar100-c", 0.005, 32),
    ):
        host = holdfast.compose("memo", preset=preset).host
        assert (host.lr, host.views, host.prior, host.alpha) == (lr, views, 16, None)
        assert (host.optimizer, host.momentum, host.nesterov, host.steps) == ("sgd", 0.9, True, 1)
        assert (host.select, host.augment) == ("all", "augmix")
    made = card("memo(steps=3)")
    assert (made.forwards, made.backwards, made.trains) == ("4 an image", "3 an image", "all")
    assert "1.9·lr·g" in made.parts[0].note and "momentum=0" in made.parts[0].note
    assert not holdfast.compose("memo(momentum=0)").host.nesterov
    given = holdfast.compose("memo(alpha=0.1)")
    assert given.host.prior is None and holdfast.compose(str(given)) == given


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("memo(alpha=0.1,prior=4)", r"write memo\(alpha=0.1\), or memo\(prior=4\)"),
        ("memo+steady", r"memo does not normalise.*write eata\+steady, or bn\+steady"),
    ],
)
def test_what_does_not_go_together(spec, advice):
    with pytest.raises(ValueError, match=advice):
        holdfast.compose(spec)


def test_a_window_has_no_use():
    with pytest.raises(ValueError, match=r"window=8 has no use here"):
        holdfast.adapt(toy_net(), "memo", window=8)


def test_grey_images_take_a_fixed_view():
    class Grey(torch.nn.Sequential):
        pass

    net = Grey(torch.nn.Flatten(), torch.nn.Linear(64, 7))
    images = torch.rand(2, 1, 8, 8)
    adapter = holdfast.adapt(net, "memo(views=2)")
    before = state_of(adapter)
    with pytest.raises(ValueError, match=r"augment=augmix works on RGB.*augment=flip"):
        adapter(images)
    assert_same_state(state_of(adapter), before)
    holdfast.adapt(net, "memo(views=2,augment=flip)")(images)
