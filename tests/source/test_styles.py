import pytest
import torch
from toys import source_batches, toy_net

import holdfast


def test_styles_are_made_once_and_kept_in_the_sources_file(tmp_path):
    net, passes = toy_net(), []

    class Loader(list):
        def __iter__(self):
            passes.append(1)
            return super().__iter__()

    source = holdfast.Source.from_loader(net, Loader(source_batches()))
    before = len(passes)
    holdfast.adapt(net, "tent+reservoir", source=source)
    assert len(passes) == before + 2  # the second shows that nothing is shuffled
    assert source.tensors.keys() >= {"styles/3/0.999/mean", "styles/3/0.999/limit"}
    source.save(tmp_path / "source")
    loaded = holdfast.Source.load(tmp_path / "source")
    route = holdfast.adapt(net, "eta+reservoir", source=loaded)._state.route
    again = holdfast.adapt(net, "eta+reservoir", source=source)._state.route
    assert torch.equal(route.mean, again.mean) and route.limit == again.limit
    with pytest.raises(ValueError, match="holds no styles, and no loader"):
        holdfast.adapt(net, "tent+reservoir(style_layers=1)", source=loaded)


def test_a_loader_that_shuffles_is_gone_through_until_there_are_enough(monkeypatch):
    from holdfast.source import styles

    monkeypatch.setattr(styles, "BATCHES", 10)
    images = torch.cat([batch for batch, _ in source_batches()])
    labels = torch.cat([label for _, label in source_batches()])
    data = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=12, shuffle=True)  # 12, 12, 12 and 6
    net = toy_net()
    source = holdfast.Source.from_loader(net, loader)
    seen = []
    real = styles.style_of
    monkeypatch.setattr(styles, "style_of", lambda *a: seen.append(len(a[1])) or real(*a))
    holdfast.adapt(net, "tent+reservoir", source=source)
    assert seen == [12] * 10


def test_one_batch_alone_does_not_tell_how_far_styles_are_apart():
    net = toy_net()
    source = holdfast.Source.from_loader(net, source_batches(batches=1))
    with pytest.raises(ValueError, match=r"the same style.*a loader of several batches"):
        holdfast.adapt(net, "tent+reservoir", source=source)
