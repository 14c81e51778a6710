"""Adversarial images: near their originals, mistaken, the same each time, and mixed in unscored."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pools_for_tests import Counted, CountedData
from torch import nn

from holdfast.data import glyphs
from holdfast.data.attack import Attacked
from holdfast.data.glyphs import Glyphs
from holdfast.data.pools import Made
from holdfast.data.streams import Noisy, parse

CLEAN = Glyphs("test", 48)
IMAGES = CLEAN.images(range(48))
MODEL = glyphs.model()
SMALL = {"epsilon": 2 / 255, "steps": 4}


def attacked(**options):
    return Attacked({"clean": CLEAN}, MODEL, **options)["clean"]


def accuracy(images):
    with torch.no_grad():
        return float((MODEL(images).argmax(1).numpy() == CLEAN.labels).mean())


@pytest.mark.parametrize(
    "options",
    [{}, {"steps": 1, "epsilon": 0.2}, {"stride": 1 / 255}, SMALL],
    ids=["cifar", "imagenet", "sotta's stride", "small"],
)
def test_an_image_stays_in_the_ball_and_in_range(options):
    found = attacked(**options).images(range(8))
    steps, epsilon = options.get("steps", 10), options.get("epsilon", 0.1)
    reach = min(epsilon, steps * options.get("stride", 1))
    apart = (found - IMAGES[:8]).abs()
    assert apart.max() <= reach + 1e-6
    inside = (IMAGES[:8] > epsilon) & (IMAGES[:8] < 1 - epsilon)
    assert apart[inside].median() > 0.3 * reach  # it makes use of its room
    assert found.min() >= 0 and found.max() <= 1 and found.dtype == torch.float32


def test_the_model_mistakes_what_is_attacked_and_not_noise_of_the_same_size():
    assert accuracy(IMAGES) > 0.8
    signs = torch.randn(IMAGES.shape, generator=torch.Generator().manual_seed(0)).sign()
    assert accuracy((IMAGES + SMALL["epsilon"] * signs).clamp(0, 1)) > 0.7
    assert accuracy(attacked(**SMALL).images(range(48))) < 0.4
    assert accuracy(attacked(steps=3).images(range(48))) < 0.03


def test_one_step_goes_up_the_slope_of_the_true_label():
    images = IMAGES[:3].clone().requires_grad_()
    nn.functional.cross_entropy(MODEL(images), torch.from_numpy(CLEAN.labels[:3])).backward()
    expected = (IMAGES[:3] + 0.01 * images.grad.sign()).clamp(0, 1)
    found = attacked(steps=1, epsilon=0.05, stride=0.01).images(range(3))
    assert ((found - expected).abs() > 1e-6).float().mean() < 1e-3  # a slope of 0 has either sign
    MODEL.zero_grad()


def test_an_image_depends_on_its_index_alone():
    pool = attacked(**SMALL)
    whole = pool.images(range(10))
    torch.rand(3)
    for some in ([7], [3, 9, 0, 3], range(5, 10)):
        assert torch.equal(pool.images(some), whole[list(some)])
    assert torch.equal(attacked(**SMALL).images(range(10)), whole)
    assert len(pool) == 48 and pool.labels is CLEAN.labels


def test_what_is_around_it_does_not_matter():
    expected = attacked(**SMALL).images([1, 2])
    contexts = [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)]
    for context in contexts:
        with context:
            found = attacked(**SMALL).images([1, 2])
        assert torch.equal(found, expected) and not found.requires_grad


def test_the_model_is_untouched_and_may_change_afterwards():
    model = copy.deepcopy(MODEL).train()
    before = copy.deepcopy(model.state_dict())
    pool = Attacked({"clean": CLEAN}, model, **SMALL)["clean"]
    expected = attacked(**SMALL).images([0, 5])
    assert torch.equal(pool.images([0, 5]), expected)
    assert model.training and all(one.requires_grad for one in model.parameters())
    assert all(one.grad is None for one in model.parameters())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    with torch.no_grad():
        for one in model.parameters():
            one.zero_()  # as an adapter of the same model might
    assert torch.equal(pool.images([0, 5]), expected)


def test_a_model_that_returns_an_object():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = MODEL

        def forward(self, images):
            return SimpleNamespace(logits=self.model(images))

    found = Attacked({"clean": CLEAN}, Wrapped(), **SMALL)["clean"].images([4])
    assert torch.equal(found, attacked(**SMALL).images([4]))


def test_noisy_mixes_in_the_attacked_images_of_the_same_domain_unscored():
    data = Made(CLEAN)
    intruders = Attacked(data, MODEL, steps=1, epsilon=2 / 255)
    stream = parse("noisy(kind=attack,order='fog,snow',limit=6)")
    batches = list(stream.over(data, seed=3, intruders=intruders).batches())
    images, scored = (torch.cat([getattr(one, n) for one in batches]) for n in ("images", "scored"))
    names = np.array([name for one in batches for name in one.domains])
    assert sorted(set(names)) == ["fog", "fog/attack", "snow", "snow/attack"]
    assert scored.tolist() == ["/" not in name for name in names]
    for domain in ("fog", "snow"):
        benign, hostile = images[names == domain], images[names == f"{domain}/attack"]
        apart = (benign[:, None] - hostile[None]).abs().amax((2, 3, 4))
        assert len(benign) == len(hostile) == 6
        # Each is a changed copy of one of the others.
        assert sorted(apart.argmin(1).tolist()) == list(range(6))
        assert (apart.amin(1) <= 2 / 255 + 1e-6).all() and (apart.amin(1) > 0).all()


def test_workers_read_the_same():
    data = Made(CLEAN)
    intruders = Attacked(data, MODEL, steps=1)
    flow = Noisy(kind="attack", order="fog", limit=9, batch=6).over(data, intruders=intruders)
    for one, other in zip(flow.batches(), flow.batches(workers=1), strict=True):
        assert torch.equal(one.images, other.images)


def test_what_is_missing_is_told():
    with pytest.raises(ValueError, match=r"intruders=Attacked\(data, model\)\), from holdfast"):
        Noisy(kind="attack").over(CountedData())
    others = {"fog": Counted()}
    with pytest.raises(ValueError, match=r"The intruders have none for snow \(snow\)"):
        Noisy(kind="other", order="fog,snow").over(CountedData(), intruders=others)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "steps is a whole number from 1 on, not 0"),
        ({"epsilon": 0}, "epsilon is above 0 and at most 1"),
        ({"epsilon": 8}, "not 8 and 2"),
        ({"stride": -1}, "stride is above 0"),
    ],
)
def test_settings_are_checked(options, says):
    with pytest.raises(ValueError, match=says):
        attacked(**options)


def test_labels_are_the_models():
    class Unlabelled(Glyphs):
        def __init__(self):
            super().__init__("test", 3)
            self.labels = np.full(3, -1)

    with pytest.raises(ValueError, match="label -1, and the model knows 0 to 49"):
        Attacked({"clean": Unlabelled()}, MODEL)["clean"].images([0])
