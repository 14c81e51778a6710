import pytest
import torch
from follow import TOLERANCE, follow
from plain import NORM_AFFINE, PlainAdam, PlainSgd
from plain_roid import FLIP, KINDS_OF, PlainRoid
from toys import KINDS, state_of, stream, toy_net

import holdfast

SIZE = 40  # numbers that train in the toy net: scale and shift of 8 and of 12 channels
HIDDEN, VARIANCE = "model/settle/0/hidden", "model/settle/0/variance"


def kalman(noise, alpha=0.99, gamma=0.99):
    """The filter's facts, weight by weight; keeps its own copy, its variance and every β."""
    known = {"v": 0.0, "h": None, "betas": []}
    share = noise * SIZE / 38400

    @torch.no_grad()
    def after(weights, start):
        if known["h"] is None:
            known["h"] = {name: source.clone() for name, source in start.items()}
        h = known["h"]
        for name, source in start.items():
            h[name] = alpha * h[name] + (1 - alpha) * source
        known["v"] = alpha**2 * known["v"] + share
        beta = (1 - share) / (known["v"] + 1 - share)
        if beta < 0.89:
            beta = 0.89
        if beta >= 0.9999:
            beta = 1
        known["v"] *= beta
        known["betas"].append(beta)
        for name in start:
            if beta != 1:
                h[name] = beta * h[name] + (1 - beta) * weights[name]
            weights[name].copy_(gamma * weights[name] + (1 - gamma) * h[name])

    after.known = known
    return after


def restate(after, adam=False):
    def build(net):
        def optimizer(toy):
            return PlainAdam(toy, 0.001) if adam else PlainSgd(toy, 0.0005, nesterov=True)

        plain = PlainRoid(net, optimizer, after=after)
        return plain, plain.toy

    return build


def spec(noise, more=""):
    return f"cmf(lr=0.0005,{FLIP},noise={noise}{more})"


def assert_follows(adapter, after, dtype):
    state, known = state_of(adapter), after.known
    hidden = torch.cat([known["h"][name].reshape(-1) for name in NORM_AFFINE])
    assert (state[HIDDEN] - hidden).abs().max() <= TOLERANCE[dtype]
    assert float(state[VARIANCE]) == pytest.approx(known["v"], rel=1e-9)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("noise", "low", "high"),
    [
        (0.005, 1, 1),  # what is seen adds nothing: h stays the source
        (5, 0.9, 0.995),
        (300, 0.89, 0.89),  # the floor
        (2000, 0.89, 0.89),  # Q above 1
    ],
)
def test_cmf(dtype, noise, low, high):
    after = kalman(noise)
    adapter, _, _ = follow(spec(noise), restate(after), dtype, kinds=KINDS_OF[dtype])
    betas = after.known["betas"]
    assert len(betas) == len(KINDS) and all(low <= beta <= high for beta in betas)
    assert_follows(adapter, after, dtype)
    source = torch.cat([toy_net(dtype=dtype).get_parameter(n).reshape(-1) for n in NORM_AFFINE])
    stays = torch.equal(state_of(adapter)[HIDDEN], source.detach())
    assert stays == (noise == 0.005)


def test_beta_crosses_from_one_to_less_as_variance_gathers():
    after = kalman(0.09)
    adapter, _, _ = follow(spec(0.09), restate(after), torch.float64)
    betas = after.known["betas"]
    assert betas[0] == 1 and betas[-1] < 1
    assert_follows(adapter, after, torch.float64)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.5, 0.99), (0.99, 0.7), (1, 0.9), (0, 0)])
def test_momenta(alpha, gamma):
    after = kalman(20, alpha, gamma)
    more = f",hidden_momentum={alpha},model_momentum={gamma}"
    adapter, _, _ = follow(spec(20, more), restate(after), torch.float64)
    assert_follows(adapter, after, torch.float64)


def test_adam():
    after = kalman(20)
    given = f"cmf(lr=0.001,optimizer=adam,{FLIP},noise=20)"
    adapter, _, _ = follow(given, restate(after, adam=True), torch.float64)
    assert_follows(adapter, after, torch.float64)


def test_without_a_share_of_h_it_is_roid_without_ensembling():
    net, batches = toy_net(), stream(KINDS)
    cmf = holdfast.adapt(net, f"cmf({FLIP},model_momentum=1)")
    roid = holdfast.adapt(net, f"roid({FLIP},source_momentum=1)")
    for images in batches:
        assert torch.equal(cmf(images), roid(images))
    assert not any("/settle/" in name for name in state_of(cmf))


def test_a_guard_that_goes_back_takes_the_hidden_copy_back_too():
    net = toy_net()
    adapter = holdfast.adapt(net, spec(20), guard="rollback")
    fresh = state_of(adapter)
    for images in stream(("some", "all")):
        adapter(images)
    assert not torch.equal(state_of(adapter)[HIDDEN], fresh[HIDDEN])
    adapter._state.go_back()
    now = state_of(adapter)
    for name in (HIDDEN, VARIANCE, "model/norm1.weight"):
        assert torch.equal(now[name], fresh[name])


def test_a_reset_clears_the_variance():
    adapter = holdfast.adapt(toy_net(), spec(20))
    adapter(stream(("some",))[0])
    assert float(state_of(adapter)[VARIANCE]) > 0
    adapter.reset()
    assert float(state_of(adapter)[VARIANCE]) == 0


def test_settings_of_its_own():
    host = holdfast.compose("cmf").host
    assert (host.hidden_momentum, host.model_momentum, host.noise) == (0.99, 0.99, 0.005)
    with pytest.raises(ValueError, match="cmf has no setting 'source_momentum'"):
        holdfast.compose("cmf(source_momentum=0.9)")
