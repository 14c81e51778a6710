import pytest
import torch
from toys import CLASSES, source_batches, toy_net, toy_source

import holdfast
from holdfast import Source


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


def test_classes_of_another_head_are_refused():
    """A source made through one head, used with another."""
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, 9), torch.nn.ReLU(), torch.nn.Linear(9, CLASSES)
    )
    source = toy_source(net)
    source.tensors["prototypes/source"] = torch.zeros(5, 9)
    with pytest.raises(ValueError, match=r"5 classes of feature size 9.*7 classes"):
        holdfast.adapt(net, "debias(select=all)", source=source)


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
