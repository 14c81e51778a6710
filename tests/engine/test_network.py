"""Models of all kinds: heads, norm layers, layouts, and those that cannot be adapted."""

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from toys import (
    CLASSES,
    assert_same_state,
    group_norm,
    source_batches,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast


def run(adapter, batches):
    return [adapter(images) for images in batches]


class Vectors(nn.Module):
    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 20), norm(20), nn.ReLU())
        self.out = nn.Linear(20, CLASSES)

    def forward(self, images):
        return SimpleNamespace(logits=self.out(self.body(images)))


class Tokens(nn.Module):
    """A small transformer: LayerNorm, and a linear layer behind the head in module order."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)
        self.unused = nn.Linear(16, 3)

    def forward(self, images):
        tokens = self.patch(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.block(tokens)).mean(1))


# Settings under which every image drives a step, however a net of random weights predicts.
ALL_COUNT = "eata(entropy_factor=1,redundancy=2)+debias(filter=false)"


@pytest.mark.parametrize("spec", ["tent", "eata+debias", "eata+debias+consistency"])
@pytest.mark.parametrize(
    ("make", "head", "trained"),
    [
        (Vectors, None, 2),
        (lambda: Vectors(nn.LayerNorm), None, 2),
        (lambda: toy_net(group_norm), None, 4),
        (Tokens, "head", 6),
    ],
)
def test_models(make, head, trained, spec):
    torch.manual_seed(0)
    net = make()
    source = holdfast.Source.from_loader(net, source_batches(), head=head)
    adapter = holdfast.adapt(net, spec.replace("eata+debias", ALL_COUNT), source=source, head=head)
    before = {name: p.detach().clone() for name, p in adapter.model.named_parameters()}
    for logits in run(adapter, stream(("some", "all"))):
        assert logits.shape == (16, CLASSES)
    assert adapter.last.stepped
    moved = [n for n, p in adapter.model.named_parameters() if not torch.equal(p, before[n])]
    assert len(moved) == trained
    assert all("norm" in name or "body.2" in name for name in moved)


def test_the_head_is_found_or_named():
    net = Tokens()
    with pytest.raises(
        ValueError, match=r"'unused' does not look like the head.*saw nothing.*head="
    ):
        holdfast.Source.from_loader(net, source_batches())
    with pytest.raises(ValueError, match=r"No layer is called 'heed'\. Did you mean 'head'"):
        holdfast.adapt(net, "tent", head="heed")
    with pytest.raises(ValueError, match=r"'norm' is a LayerNorm; the head needs a weight"):
        holdfast.adapt(net, "tent", head="norm")
    assert holdfast.adapt(net, "tent", head="head").network.classes == CLASSES


def test_tent_needs_no_head_but_debias_does():
    convolution = nn.Sequential(
        nn.Conv2d(3, CLASSES, 3), nn.BatchNorm2d(CLASSES), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    run(holdfast.adapt(convolution, "tent"), stream(("some",)))
    with pytest.raises(ValueError, match=r"No nn\.Linear.*head='classifier'"):
        holdfast.adapt(convolution, "debias(lambda_src=0)")


def test_a_convolution_can_be_the_head():
    net = nn.Sequential(
        nn.Conv2d(3, 10, 3),
        nn.BatchNorm2d(10),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(10, CLASSES, 1),
        nn.Flatten(),
    )
    source = holdfast.Source.from_loader(net, source_batches(), head="3")
    assert source.prototypes.shape == (CLASSES, 10)
    run(holdfast.adapt(net, "debias(filter=false)", head="3", source=source), stream(("some",)))


def test_not_a_model_and_not_logits():
    with pytest.raises(ValueError, match=r"torch\.nn\.Module, not str"):
        holdfast.adapt("model", "tent")
    with pytest.raises(ValueError, match=r"returned \(16, 7, 8, 8\).*\(batch, classes\)"):
        run(holdfast.adapt(nn.Sequential(nn.Conv2d(3, 7, 3, padding=1)), "frozen"), stream())


def test_the_models_own_error_is_passed_on_with_the_shape():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    adapter = holdfast.adapt(net, "tent")
    before = state_of(adapter)
    with pytest.raises(ValueError, match=r"Sequential cannot take images of shape \(4, 3, 9, 9\)"):
        adapter(torch.rand(4, 3, 9, 9))
    assert_same_state(state_of(adapter), before)


class Viewing(nn.Module):
    """`view` takes contiguous tensors only."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.fc = nn.Linear(256, CLASSES)

    def forward(self, images):
        return self.fc(self.norm(self.conv(images)).view(len(images), -1))


def test_a_model_that_cannot_take_channels_last_runs_contiguous():
    torch.manual_seed(0)
    net = Viewing()
    source = holdfast.Source.from_loader(net, source_batches())
    spec = "tent(lr=0.01)+debias"
    auto = holdfast.adapt(net, spec, source=source)
    contiguous = holdfast.adapt(net, spec, source=source, memory_format="contiguous")
    assert auto.network.memory_format is torch.channels_last
    for images in stream(("some", "all")):
        assert torch.equal(auto(images), contiguous(images))
    assert auto.network.memory_format is torch.contiguous_format
    # The failed attempt was not recorded.
    assert_same_state(state_of(auto), state_of(contiguous))
    with pytest.raises(ValueError, match="view size"):
        holdfast.adapt(net, "tent", memory_format="channels_last")(images)


def test_a_batch_the_model_cannot_take_leaves_the_memory_format():
    adapter = holdfast.adapt(toy_net(), "tent")
    with pytest.raises(ValueError, match="cannot take images"):
        adapter(torch.rand(4, 1, 8, 8))
    assert adapter.network.memory_format is torch.channels_last
    assert adapter.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_sync_batch_norm_outside_a_process_group():
    net = toy_net()
    adapter = holdfast.adapt(nn.SyncBatchNorm.convert_sync_batchnorm(net), "tent")
    plain = holdfast.adapt(toy_net(), "tent")
    for images in stream(("some", "all")):
        assert torch.equal(adapter(images), plain(images))


def test_tied_norm_layers_train_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_net()
            self.twin = nn.BatchNorm2d(8)
            self.twin.weight = self.net.norm1.weight

        def forward(self, images):
            return self.net(images)

    adapter = holdfast.adapt(Tied(), "tent(momentum=0,lr=0.01)")
    plain = holdfast.adapt(toy_net(), "tent(momentum=0,lr=0.01)")
    images = stream(("some",))[0]
    adapter(images), plain(images)
    assert torch.equal(adapter.model.net.norm1.weight, plain.model.norm1.weight)
    adapter.save(tmp_path / "state")


def test_setting_the_mode_of_the_adapted_model_changes_nothing():
    adapter = holdfast.adapt(toy_net(), "tent")
    images = stream(("some", "all"))
    adapter(images[0])
    expected = adapter.predict(images[1])
    for mode in (adapter.model.eval, adapter.model.norm1.train):
        mode()
        assert torch.equal(adapter.predict(images[1]), expected)


def test_what_needs_no_feature_needs_no_head():
    """An unused linear layer comes last; EATA without Fisher only has to know the classes."""
    net = Tokens()
    for spec in ("frozen", "tent"):
        run(holdfast.adapt(net, spec), stream(("some", "all")))
    convolution = nn.Sequential(
        nn.Conv2d(3, 5, 3),
        nn.BatchNorm2d(5),
        nn.Conv2d(5, CLASSES, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    adapter = holdfast.adapt(convolution, "eta(entropy_factor=1,redundancy=2)", head="2")
    run(adapter, stream(("some",)))
    assert adapter.last.stepped
    with pytest.raises(ValueError, match=r"'0' does not look like the head.*\(16, 3, 8, 8\)"):
        run(
            holdfast.adapt(convolution, "debias(lambda_src=0,filter=false)", head="0"),
            stream(("some",)),
        )


def test_batch_norm_without_running_statistics():
    def norm(channels):
        return nn.BatchNorm2d(channels, track_running_stats=False)

    net = toy_net(norm)
    images = stream(("some",))[0]
    for spec in ("frozen", "tent"):
        adapter = holdfast.adapt(net, spec)
        # Before the stream there are no statistics to write out: each batch keeps its own.
        assert torch.allclose(adapter.frozen()(images), net(images), atol=1e-3)
        with pytest.raises(ValueError, match="window=W"):
            adapter(images[:1])
        with pytest.raises(ValueError, match="start the window with two"):
            holdfast.adapt(net, spec, window=4)(images[:1])
        adapter(images)
        assert adapter.frozen().norm1.running_mean is not None


def test_predict_agrees_with_a_call_on_transformers():
    adapter = holdfast.adapt(Tokens(), "tent", head="head")
    for images in stream(("some", "all")):
        predicted = adapter.predict(images)
        assert torch.equal(predicted, adapter(images))


def test_a_head_called_by_keyword():
    class Keyword(Viewing):
        def forward(self, images):
            return self.fc(input=self.norm(self.conv(images)).flatten(1))

    source = holdfast.Source.from_loader(Keyword(), source_batches())
    assert source.prototypes.shape == (CLASSES, 256)


def test_no_gradient_reaches_what_trains():
    class Closed(Viewing):
        @torch.no_grad()
        def forward(self, images):
            return super().forward(images)

    with pytest.raises(ValueError, match="does the model run under no_grad"):
        holdfast.adapt(Closed(), "tent")(stream(("some",))[0])


def test_script_modules_and_models_that_cannot_be_copied():
    net = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)))
    with pytest.raises(ValueError, match="TorchScript"):
        holdfast.adapt(net, "tent")
    locked = toy_net()
    locked.lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be copied"):
        holdfast.adapt(locked, "tent")


def test_threads_wait_for_each_other():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+debias", source=toy_source(net))
    batches = stream(("some", "all") * 10)
    errors = []

    def work():
        try:
            for images in batches:
                adapter.predict(images)
                adapter(images)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert adapter.last.batch == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "x"}, r"source is a holdfast\.Source, not str"),
        ({"input_range": "none"}, r"input_range is \(low, high\) or None"),
        ({"input_range": (1, 0)}, r"\(low, high\)"),
        ({"seed": None}, "seed is a whole number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        holdfast.adapt(toy_net(), "tent", **options)
