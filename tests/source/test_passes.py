import pytest
from plain_methods import rmt
from toys import (
    source_batches,
    toy_net,
    toy_source,
)

import holdfast
from holdfast import Source


def one_shot():
    yield from source_batches()


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


def test_a_one_shot_loader_cannot_be_replayed():
    net = toy_net()
    source = holdfast.Source.from_loader(net, iter(source_batches()))
    for spec in (rmt(), rmt(weight_contrastive=0), rmt(weight_contrastive=0, warmup_samples=28)):
        with pytest.raises(ValueError, match="one-shot"):
            holdfast.adapt(net, spec, source=source)
