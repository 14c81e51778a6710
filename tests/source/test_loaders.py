import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from toys import CLASSES, images_of, source_batches, toy_net, toy_source

import holdfast
from holdfast import Source


def test_limit_cuts_the_last_batch():
    source = Source.from_loader(toy_net(), source_batches(), limit=21)
    assert int(source.counts.sum()) == 21
    assert source.counts.tolist() == [3] * CLASSES


def test_no_limit_takes_all():
    source = Source.from_loader(toy_net(), source_batches(), limit=None)
    assert int(source.counts.sum()) == 42


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 7])), "label 7, but the model has 7"),
        ((torch.rand(4, 3, 8, 8), torch.tensor([0, 1, -1, 2])), "label -1"),
        ((torch.rand(4, 3, 8, 8), torch.tensor([0, 1])), "4 whole numbers"),
        ((torch.rand(4, 3, 8, 8), torch.rand(4)), "whole numbers"),
        (torch.rand(4, 3, 8, 8), r"yields \(images, labels\)"),
        ((torch.rand(4, 3, 8, 8) * 255, torch.zeros(4).long()), r"batch 0 .*divide by 255"),
        ((torch.rand(4, 3, 8, 8) * torch.nan, torch.zeros(4).long()), r"NaN or Inf"),
    ],
)
def test_bad_loaders(batch, message):
    with pytest.raises(ValueError, match=message):
        Source.from_loader(toy_net(), [batch])


@pytest.mark.parametrize("limit", [0, -3])
def test_bad_limits(limit):
    with pytest.raises(ValueError, match="at least 1"):
        Source.from_loader(toy_net(), source_batches(), limit=limit)


def test_an_empty_loader():
    with pytest.raises(ValueError, match="empty"):
        Source.from_loader(toy_net(), [])


def test_a_data_loader_with_its_own_order():
    net = toy_net()
    images, labels = (torch.cat(each) for each in zip(*source_batches(), strict=True))
    dataset = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(dataset, batch_size=10)
    source = Source.from_loader(net, loader)
    assert torch.allclose(source.prototypes, toy_source(net).prototypes, atol=1e-5)


def shuffled(batches):
    images = torch.cat([images for images, _ in batches])
    labels = torch.cat([labels for _, labels in batches])
    return DataLoader(TensorDataset(images, labels), batch_size=14, shuffle=True)


def test_a_loader_that_shuffles_gives_the_same_source_and_leaves_torchs_randomness_alone():
    net = toy_net()
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        source = holdfast.Source.from_loader(net, shuffled(source_batches()), limit=20)
        assert torch.equal(torch.get_rng_state(), before)
        made.append(source)
    assert torch.equal(made[0].prototypes, made[1].prototypes)
    network = holdfast.adapt(net, "tent").network
    for images in (20, 30):
        assert made[0].work("x", network, images).key == made[1].work("x", network, images).key


def test_replay_of_a_loader_that_shuffles_is_the_same_from_any_start():
    net = toy_net()
    source = holdfast.Source.from_loader(net, shuffled(source_batches()))
    network = holdfast.adapt(net, "tent").network
    straight = source.replay(network)
    every = [straight[number] for number in range(9)]
    for number in (0, 8, 4, 4, 5, 3):
        images, labels = source.replay(network)[number]
        assert torch.equal(images, every[number][0]) and torch.equal(labels, every[number][1])
    jumping = source.replay(network)
    for number in (7, 2, 3, 3, 8):
        assert torch.equal(jumping[number][0], every[number][0])
    # Three batches a pass, and every pass in another order.
    assert not torch.equal(every[0][0], every[3][0])


def test_replay_names_a_bad_batch_of_the_loader_and_goes_on_after_it():
    net = toy_net()
    batches = source_batches()
    source = holdfast.Source.from_loader(net, batches)
    good = batches[1]
    batches[1] = (good[0] * 255, good[1])
    replay = source.replay(holdfast.adapt(net, "tent").network)
    first = replay[0][0]
    with pytest.raises(ValueError, match=r"Replay, batch 1 of the source's loader: Images lie in"):
        replay[1]
    batches[1] = good
    assert torch.equal(replay[1][1], good[1])
    assert torch.equal(replay[2][1], batches[2][1]) and torch.equal(replay[3][0], first)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (5, r"int cannot be gone through: give one of these"),
        ([()], r"torch\.Tensor, not tuple"),
        ([], "empty; expected batches"),
        ([(images_of(source_batches())[0], torch.zeros(14) > 1)], "expected 14 whole numbers"),
        (
            [(images_of(source_batches())[0], torch.zeros(14, device="meta").long())],
            "expected 14 whole numbers",
        ),
        (
            [(images_of(source_batches())[0], torch.zeros(14).long().to_sparse())],
            "expected 14 whole numbers",
        ),
    ],
)
def test_loaders_that_are_none(loader, message):
    with pytest.raises(ValueError, match=message):
        Source.from_loader(toy_net(), loader)


@pytest.mark.parametrize("limit", ["all", [], 2.5, True, float("nan")])
def test_limits_that_are_no_numbers(limit):
    with pytest.raises(ValueError, match=r"limit is a number of images, at least 1, or None"):
        Source.from_loader(toy_net(), source_batches(), limit=limit)
