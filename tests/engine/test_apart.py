"""Batch norm for groups of images at once: moments, outputs and gradients of each group's own."""

import pytest
import torch

from holdfast.engine.mixed import Gated, GatedApart
from holdfast.engine.moments import Groups, batch_moments

SHAPES = [(3, 2, 2), (3,), (3, 5)]
# Groups of one size after each other, of different sizes, and among each other.
OF = {"even": [0, 0, 1, 1, 2, 2], "ragged": [0, 0, 0, 1, 2, 2], "mixed": [1, 0, 2, 0, 0, 1, 2]}


def groups_of(kind):
    of = torch.tensor(OF[kind])
    sizes = of.bincount().tolist()
    return Groups(of, sizes) if kind == "mixed" else Groups.in_order(sizes, of.device)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def forms(x):
    yield x
    if x.ndim == 4:
        yield x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", OF)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moments_are_each_groups_own(kind, shape):
    groups, given = groups_of(kind), torch.tensor(OF[kind])
    assert torch.equal(groups.of, given) and groups.even == (kind == "even")
    for x in forms(100 + draw(len(given), *shape)):
        mean, var, centred = groups.moments(x)
        for group in range(3):
            expected = batch_moments(x[given == group])
            torch.testing.assert_close((mean[group], var[group]), expected)
            torch.testing.assert_close(
                centred[given == group].transpose(0, 1).flatten(1),
                x[given == group].transpose(0, 1).flatten(1) - mean[group][:, None],
            )


def apart(x, scale, shift, groups, own_mean, own_var, share):
    """A share of each group's own moments in those that it is normalised by."""
    mean, var, centred = groups.moments(x)
    center, spread = own_mean + share * (mean - own_mean), own_var + share * (var - own_var)
    return GatedApart.apply(x, scale, shift, centred, mean - center, spread, share, groups, 1e-5)


@pytest.mark.parametrize("kind", OF)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_are_those_of_what_it_does(kind, shape):
    groups, share = groups_of(kind), torch.tensor([[0.0], [0.4], [1.0]]).double()
    own = draw(3, seed=3), draw(3, seed=4) ** 2 + 0.3
    for x in forms(draw(len(OF[kind]), *shape)):
        given = [x.requires_grad_(), draw(3, 3, seed=1).requires_grad_()]
        given.append(draw(3, 3, seed=2).requires_grad_())
        assert torch.autograd.gradcheck(lambda *a: apart(*a, groups, *own, share), given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_each_group_is_as_by_itself(dtype):
    groups, of = groups_of("mixed"), torch.tensor(OF["mixed"])
    x = draw(len(of), 3, 4, 4).to(dtype).requires_grad_()
    wide = torch.promote_types(dtype, torch.float32)
    scale, shift = (draw(3, 3, seed=s).to(wide).requires_grad_() for s in (1, 2))
    share = torch.tensor([[0.2], [0.7], [0.0]]).to(wide)
    own = draw(3, seed=3).to(wide), (draw(3, seed=4) ** 2 + 0.3).to(wide)
    upstream = draw(*x.shape, seed=5).to(dtype)
    found = apart(x, scale, shift, groups, *own, share)
    assert found.dtype is dtype
    gradients = torch.autograd.grad(found, (x, scale, shift), upstream)
    for group in range(3):
        mine = of == group
        part = x[mine].detach().requires_grad_()
        affine = [each[group].detach().requires_grad_() for each in (scale, shift)]
        mean, var = batch_moments(part)
        a = share[group, 0]
        center, spread = own[0] + a * (mean - own[0]), own[1] + a * (var - own[1])
        alone = Gated.apply(part, *affine, center, spread, mean, a, 1e-5)
        expected = torch.autograd.grad(alone, (part, *affine), upstream[mine])
        kind = {"atol": 0.1, "rtol": 0.02} if dtype is torch.bfloat16 else {}
        torch.testing.assert_close(found[mine], alone, **kind)
        for mixed, own_gradient in zip(gradients, expected, strict=True):
            here = mixed[mine] if mixed is gradients[0] else mixed[group]
            torch.testing.assert_close(here, own_gradient, **kind)
