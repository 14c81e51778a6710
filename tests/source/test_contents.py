"""What a source's file must hold, and loaders that are none."""

import pytest
import torch
from toys import source_batches, toy_net, toy_source

import holdfast
from holdfast import Source
from holdfast.source.source import KIND
from holdfast.util import files


@pytest.fixture
def load_with(tmp_path):
    """Load a source with other tensors, or another header."""
    net, path = toy_net(), tmp_path / "source"
    source = toy_source(net)
    for spec in ("ttac", "rmt(warmup_samples=28)"):
        holdfast.adapt(net, spec, source=source)
    source.save(path)
    header, tensors = files.read(path, KIND)

    def load(name=None, change=None, **headers):
        changed = dict(tensors)
        if name:
            changed[name] = change(changed[name]).clone()
        files.write(path, KIND, {**header, **headers}, changed)
        return net, Source.load(path, source_batches())

    return load


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("prototypes/source", lambda t: t.flatten()),
        ("prototypes/source", lambda t: torch.full_like(t, torch.nan)),
        ("counts/source", lambda t: t[:-1]),
        ("counts/source", lambda t: -t),
        ("predicted/source", lambda t: t + 100),
        ("gaussians/all/mean", lambda t: t[None]),
        ("loader/batch_size", lambda t: t * 0),
        ("counts/source", lambda t: t.to(torch.complex64)),
        ("gaussians/diagonal/count", lambda t: t.float()),
    ],
)
def test_what_does_not_fit_is_refused(load_with, name, change):
    with pytest.raises(ValueError, match=rf"{name}.*expected.*Source\.from_loader"):
        load_with(name, change)


def test_a_header_that_is_not_what_it_should_be(load_with):
    with pytest.raises(ValueError, match="for 'limit'; expected"):
        load_with(limit="many")
    with pytest.raises(ValueError, match="input_range is"):
        load_with(input_range=[1, 0])


def test_a_warm_up_of_another_model(load_with):
    _, source = load_with()
    (name,) = (n for n in source.tensors if n.startswith("work/") and n.endswith("student/fc.bias"))
    net, source = load_with(name, lambda t: t[None])
    with pytest.raises(ValueError, match=r"warm-up does not fit this model.*Make the source again"):
        holdfast.adapt(net, "rmt(warmup_samples=28)", source=source)
