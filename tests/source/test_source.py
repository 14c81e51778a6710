import pytest
import torch
from plain_methods import source_features
from torch.utils.data import DataLoader, TensorDataset
from toys import CLASSES, source_batches, toy_net, toy_source

import holdfast
from holdfast import Source
from holdfast.engine.network import Network


def one_shot():
    yield from source_batches()


def test_limit_cuts_the_last_batch():
    source = Source.from_loader(toy_net(), source_batches(), limit=21)
    assert int(source.counts.sum()) == 21
    assert source.counts.tolist() == [3] * CLASSES


def test_no_limit_takes_all():
    source = Source.from_loader(toy_net(), source_batches(), limit=None)
    assert int(source.counts.sum()) == 42


def test_saved_and_loaded_is_the_same(tmp_path):
    net = toy_net()
    source = toy_source(net)
    holdfast.adapt(net, "eata+debias", source=source)  # makes Fisher information
    source.save(tmp_path / "new folder" / "source.safetensors")
    loaded = Source.load(tmp_path / "new folder" / "source.safetensors")
    assert loaded.tensors.keys() == source.tensors.keys()
    assert any(name.startswith("fisher/") for name in loaded.tensors)
    for name, tensor in source.tensors.items():
        assert torch.equal(loaded.tensors[name], tensor)
    holdfast.adapt(net, "eata+debias", source=loaded)


def test_a_source_of_another_model_is_refused(tmp_path):
    toy_source(toy_net()).save(tmp_path / "source")
    other = toy_net()
    with torch.no_grad():
        other.fc.bias[0] += 1e-6
    with pytest.raises(ValueError, match=r"another model.*Source\.from_loader"):
        holdfast.adapt(other, "debias", source=Source.load(tmp_path / "source"))


def test_another_input_normalisation_is_another_model():
    net = toy_net()
    one = holdfast.normalized(net, (0.5,) * 3, (0.5,) * 3)
    other = holdfast.normalized(net, (0.4,) * 3, (0.5,) * 3)
    with pytest.raises(ValueError, match="another model"):
        holdfast.adapt(other, "debias", source=toy_source(one))


def test_missing_source_says_what_to_pass():
    with pytest.raises(ValueError, match=r"eata\+debias needs fisher and prototypes.*from_loader"):
        holdfast.adapt(toy_net(), "eata+debias")
    holdfast.adapt(toy_net(), "tent+debias(lambda_src=0)")


def test_fisher_is_made_when_asked_for_and_remade_for_other_settings():
    net = toy_net()
    source = toy_source(net)
    assert not any(name.startswith("fisher/") for name in source.tensors)
    holdfast.adapt(net, "eata(fisher_samples=14)", source=source)
    few = source.tensors["fisher/norm1.weight"].clone()
    holdfast.adapt(net, "eata(fisher_samples=28)", source=source)
    assert not torch.equal(source.tensors["fisher/norm1.weight"], few)
    holdfast.adapt(net, "eata(fisher_samples=28,select=all)", source=source)
    assert "fisher/conv1.weight" in source.tensors


def test_a_one_shot_loader_serves_one_pass_only():
    net = toy_net()
    source = Source.from_loader(net, one_shot())
    holdfast.adapt(net, "debias", source=source)
    with pytest.raises(ValueError, match=r"second pass.*one-shot.*fisher="):
        holdfast.adapt(net, "eata", source=source)
    holdfast.adapt(net, "eata", source=Source.from_loader(net, one_shot(), fisher=one_shot()))


def test_a_loaded_source_takes_loaders_for_what_it_lacks(tmp_path):
    net = toy_net()
    toy_source(net).save(tmp_path / "source")
    with pytest.raises(ValueError, match=r"holds no Fisher.*Source\.load\(path, loader"):
        holdfast.adapt(net, "eata", source=Source.load(tmp_path / "source"))
    holdfast.adapt(net, "eata", source=Source.load(tmp_path / "source", fisher=source_batches()))


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


def test_a_model_whose_features_are_not_finite():
    net = toy_net()
    with torch.no_grad():
        net.conv2.bias[0] = torch.inf
    with pytest.raises(ValueError, match="features of the source images are NaN or Inf"):
        toy_source(net)


def test_fisher_images_may_come_alone():
    net = toy_net()
    alone = [images for images, _ in source_batches()]
    expected = Source.from_loader(net, source_batches())
    holdfast.adapt(net, "eata", source=expected)
    for loader in (alone, [[images] for images in alone]):
        source = Source.from_loader(net, source_batches(), fisher=loader)
        holdfast.adapt(net, "eata", source=source)
        name = "fisher/norm1.weight"
        assert torch.equal(source.tensors[name], expected.tensors[name])


def test_fisher_of_other_samples_is_dropped():
    net = toy_net()
    source, fresh = toy_source(net), toy_source(net)
    for spec in ("eata(select=all,fisher_samples=14)", "eata(fisher_samples=42)"):
        holdfast.adapt(net, spec, source=source)
    for each in (source, fresh):
        holdfast.adapt(net, "eata(select=all,fisher_samples=42)", source=each)
    for name, tensor in fresh.tensors.items():
        assert torch.equal(source.tensors[name], tensor)


def test_a_source_remembers_its_head():
    class TwoHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_net()
            self.other = torch.nn.Linear(CLASSES, CLASSES)  # unused, and the last

        def forward(self, images):
            return self.net(images)

    net = TwoHeads()
    source = Source.from_loader(net, source_batches(), head="net.fc")
    with pytest.raises(ValueError, match=r"head 'net\.fc'.*'other'.*to both"):
        holdfast.adapt(net, "debias", source=source)
    holdfast.adapt(net, "debias", source=source, head="net.fc")


def test_a_skipped_tail_of_one_leaves_other_prototypes_alone():
    """One image has no batch statistics; its source prototype stands all the same."""
    net = toy_net()
    (images, labels), *_ = source_batches()
    tail = (images[:1], torch.tensor([6]))
    loader = [(images, labels % 6), tail]
    source = Source.from_loader(net, loader)
    holdfast.adapt(net, "debias(statistics=batch)", source=source)
    assert source.counts[6] == 1
    assert source.tensors["counts/batch"][6] == 0


def test_an_empty_loader():
    with pytest.raises(ValueError, match="empty"):
        Source.from_loader(toy_net(), [])


def test_classes_of_another_head_are_refused():
    """A source made through one head, used with another."""
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, 9), torch.nn.ReLU(), torch.nn.Linear(9, CLASSES)
    )
    source = toy_source(net)
    source.tensors["prototypes/source"] = torch.zeros(5, 9)
    with pytest.raises(ValueError, match=r"5 classes of feature size 9.*7 classes"):
        holdfast.adapt(net, "debias(select=all)", source=source)


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


def test_work_is_named_by_the_images_that_it_is_on_in_their_order():
    net = toy_net()
    network = holdfast.adapt(net, "tent").network
    batches = source_batches()

    def key(batches, *, limit=None, images=28, text="x"):
        source = holdfast.Source.from_loader(net, batches, limit=limit)
        return source.work(text, network, images).key

    other = [*batches[:-1], (batches[-1][0].flip(3) * 0.9, batches[-1][1])]
    relabelled = [(batches[0][0], batches[0][1].roll(1)), *batches[1:]]
    assert key(batches) == key(list(batches))
    assert len({key(each) for each in (batches, batches[::-1], other, relabelled)}) == 4
    # Those beyond the limit count where they are worked on, and only there.
    size = len(batches[0][0])
    count = sum(len(images) for images, _ in batches)
    for images, same in ((size, True), (count, False)):
        assert (
            key(batches, limit=size, images=images) == key(other, limit=size, images=images)
        ) == same


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


def plain_spread(net, batches):
    """Mean over images of the squared distance to the mean of their class, number by number."""
    features, labels = [], []
    for images, given in batches:
        features += source_features(net, images).tolist()
        labels += given.tolist()
    total = 0.0
    for feature, label in zip(features, labels, strict=True):
        own = [f for f, y in zip(features, labels, strict=True) if y == label]
        for place, value in enumerate(feature):
            total += (value - sum(f[place] for f in own) / len(own)) ** 2
    return total / len(labels)


def test_the_spread_of_features_is_that_of_a_plain_loop():
    net = toy_net(dtype=torch.float64)
    uneven = [(images, labels**2 % 5) for images, labels in source_batches(torch.float64)]
    with pytest.warns(UserWarning, match="no source image"):
        source = Source.from_loader(net, uneven)
    assert float(source.tensors["spread/source"]) == pytest.approx(
        plain_spread(net, uneven), rel=1e-12
    )


def test_classes_are_as_wide_as_an_unbiased_variance_says():
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    network = Network(net)
    spread, images = plain_spread(net, source_batches(torch.float64)), int(source.counts.sum())
    width = source.class_width(network, "source", lambda: network)
    assert width**2 == pytest.approx(spread * images / (images - CLASSES), rel=1e-12)


def test_one_image_a_class_tells_no_width():
    net = toy_net()
    source = Source.from_loader(net, source_batches(batches=1, size=CLASSES))
    holdfast.adapt(net, "debias", source=source)
    with pytest.raises(ValueError, match=r"7 source images of 7 classes.*two or more.*fixed"):
        holdfast.adapt(net, "debias(balance=auto)", source=source)


def without_spread(net, path):
    """A file as it was written before the spread was kept."""
    source = toy_source(net)
    expected = source.tensors.pop("spread/source")
    source.save(path)
    return expected


def test_an_older_file_loads_and_says_what_balance_lacks(tmp_path):
    net = toy_net()
    without_spread(net, tmp_path / "source")
    older = Source.load(tmp_path / "source")
    holdfast.adapt(net, "eata+debias", source=Source.load(tmp_path / "source", source_batches()))
    holdfast.adapt(net, "debias", source=older)
    message = r"holds no width of classes.*balance=auto.*Source\.load\(path, loader"
    with pytest.raises(ValueError, match=message):
        holdfast.adapt(net, "debias(balance=auto)", source=older)


def test_a_loader_gives_an_older_file_its_spread_and_nothing_else(tmp_path):
    net = toy_net()
    expected = without_spread(net, tmp_path / "source")
    older = Source.load(tmp_path / "source", source_batches())
    before = dict(older.tensors)
    holdfast.adapt(net, "debias(balance=auto)", source=older)
    assert older.tensors.keys() - before.keys() == {"spread/source"}
    assert all(older.tensors[name] is tensor for name, tensor in before.items())
    assert torch.equal(older.tensors["spread/source"], expected)


def test_a_spread_that_is_no_number_is_refused(tmp_path):
    source = toy_source(toy_net())
    source.tensors["spread/source"] = torch.zeros(3)
    source.save(tmp_path / "source")
    with pytest.raises(ValueError, match=r"spread/source.*Make it again"):
        Source.load(tmp_path / "source")
