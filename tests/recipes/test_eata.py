import math

import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, follow
from plain import PlainSgd, PlainToy, entropy, limit
from plain_methods import plain_fisher
from toys import images_of, source_batches, stream, toy_net, toy_source

import holdfast


def restate(*, lr, factor=0.4, redundancy=0.05, weight=0.0, fisher_batches=None):
    def build(net):
        toy = PlainToy(net)
        optimizer = PlainSgd(toy, lr)
        fisher = plain_fisher(net, fisher_batches) if weight else []
        start = [toy.w[name].detach().clone() for name in toy.trained]
        memory = {"q": None}

        def step(images):
            _, logits = toy(images)
            h, p, q = entropy(logits), torch.softmax(logits, 1).detach(), memory["q"]
            keep = [i for i in range(len(images)) if h[i] < limit(factor, logits)]
            if q is not None:
                cosine = [(q @ p[i]) / (q.norm() * p[i].norm()) for i in range(len(images))]
                keep = [i for i in keep if abs(cosine[i]) < redundancy]
            if keep:
                mean = p[keep].mean(0)
                memory["q"] = mean if q is None else 0.9 * q + 0.1 * mean
                loss = sum(torch.exp(limit(factor, logits) - h[i].detach()) * h[i] for i in keep)
                loss = loss / len(keep)
                for f, s, name in zip(fisher, start, toy.trained, strict=bool(fisher)):
                    loss = loss + weight * (f * (toy.w[name] - s) ** 2).sum()
                optimizer.step(loss)
            return logits

        return step, toy

    return build


def test_an_adapter_holds_the_redundancy_it_uses(tmp_path):
    net = toy_net()
    adapter = holdfast.adapt(net, "eata", source=toy_source(net))
    assert adapter.method.host.redundancy == 0.05 * math.sqrt(1000 / 7)
    adapter.save(tmp_path / "state")
    assert holdfast.load(tmp_path / "state", net).method == adapter.method
    assert holdfast.adapt(net, "eta", preset="cifar100-c").method.host.redundancy == 0.05


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_eata(dtype):
    build = restate(
        lr=0.002, redundancy=0.6, weight=50, fisher_batches=images_of(source_batches(dtype))
    )
    _, counts, spoke = follow("eata(lr=0.002,redundancy=0.6,fisher_weight=50)", build, dtype)
    assert_none_some_all(counts)
    assert spoke == {"entropy", "fisher"}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_eta_has_no_anchor(dtype):
    _, counts, _ = follow("eta(lr=0.001,redundancy=0.6)", restate(lr=0.001, redundancy=0.6), dtype)
    assert_none_some_all(counts)


def test_defaults_are_the_papers_but_for_redundancy_which_goes_by_the_number_of_classes():
    batches = images_of(source_batches(torch.float64))
    redundancy = 0.05 * math.sqrt(1000 / 7)
    build = restate(lr=2.5e-4, redundancy=redundancy, weight=2000, fisher_batches=batches)
    follow("eata", build, torch.float64, moves=False)


def test_entropy_factor():
    _, counts, _ = follow(
        "eta(lr=0.002,redundancy=2,entropy_factor=0.2)",
        restate(lr=0.002, redundancy=2, factor=0.2),
        torch.float64,
    )
    assert any(0 < reliable < size for reliable, size in counts)


def test_fisher_counts_images_in_the_loaders_own_batches():
    """35 images of batches of 14: 14, 14 and 7 of the third."""
    batches = images_of(source_batches(torch.float64))
    cut = [batches[0], batches[1], batches[2][:7]]
    build = restate(lr=0.002, redundancy=2, weight=100, fisher_batches=cut)
    spec = "eata(lr=0.002,redundancy=2,fisher_weight=100,fisher_samples=35)"
    follow(spec, build, torch.float64)


def test_fisher_from_a_loader_of_its_own():
    net = toy_net(dtype=torch.float64)
    other = source_batches(torch.float64, seed=9)
    source = holdfast.Source.from_loader(net, source_batches(torch.float64), fisher=other)
    adapter = holdfast.adapt(net, "eata", source=source)
    expected = plain_fisher(net, images_of(other))
    for got, want in zip(
        source.fisher_of(adapter.network, adapter._slots.task.parameters, 2000).values(),
        expected,
        strict=True,
    ):
        assert torch.allclose(got, want, rtol=0, atol=1e-10)


def test_a_redundant_batch_leads_to_no_step_and_no_pull():
    """Once q is known, redundancy=0 keeps nothing: neither momentum nor Fisher may act."""
    net = toy_net()
    adapter = holdfast.adapt(net, "eata(redundancy=0,lr=0.01)", source=toy_source(net))
    first, *rest = stream(("some", "some", "all"))
    adapter(first)
    assert adapter.last.stepped
    before = {n: p.detach().clone() for n, p in adapter.model.named_parameters()}
    for images in rest:
        adapter(images)
        assert adapter.last.reliable and not adapter.last.stepped
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, before[name])
