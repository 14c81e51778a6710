"""Tiny classifiers and streams. In `ToyNet` brightness sets confidence, so that a batch can be made
of reliable images, of unreliable ones, or of both."""

import torch
from torch import Tensor, nn

import holdfast

CLASSES = 7
FEATURES = 12
GAIN = 40
KINDS = (
    "some",
    "none",
    "all",
    "some",
    "all",
    "none",
    "some",
    "some",
    "all",
    "some",
    "none",
    "some",
)


class ToyNet(nn.Module):
    """Two convolutions; the feature is scaled by the image's brightness, past all norm layers."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = norm(8)
        self.conv2 = nn.Conv2d(8, FEATURES, 3, stride=2, padding=1)
        self.norm2 = norm(FEATURES)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm1(self.conv1(images)).relu()
        x = self.norm2(self.conv2(x)).relu().mean((2, 3))
        return self.fc(self.dropout(x * (GAIN * images.mean((1, 2, 3)))[:, None]))


def toy_net(norm=nn.BatchNorm2d, dtype=torch.float32, seed=0) -> ToyNet:
    """A ToyNet whose running statistics, scales and shifts are not those of a fresh layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = ToyNet(norm).double()
        with torch.no_grad():
            for layer in (net.norm1, net.norm2):
                layer.weight.uniform_(0.7, 1.3)
                layer.bias.uniform_(-0.2, 0.2)
        net.train()
        for images in stream(("all", "some", "some"), torch.float64, seed=100):
            net(images)
        set_head(net)
    return net.eval().to(dtype)


def settled_net(dtype):
    """The toy net with running statistics that fit its stream, so that all classes are predicted
    by them too."""
    net = toy_net(dtype=torch.float64)
    norms = (net.norm1, net.norm2)
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # torch's word for a plain average
        layer.train()
    for images in stream(("all", "all", "some"), torch.float64, seed=100):
        net(images)
    for layer in norms:
        layer.momentum = 0.1
    return net.eval().to(dtype)


class StagedNet(nn.Module):
    """Two stages of two convolutions each, as larger networks have them."""

    def __init__(self):
        super().__init__()
        self.stage1 = self._stage(3, 6)
        self.stage2 = self._stage(6, FEATURES)
        self.fc = nn.Linear(FEATURES, CLASSES)

    @staticmethod
    def _stage(channels: int, out: int) -> nn.Sequential:
        first, second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        return nn.Sequential(first, nn.BatchNorm2d(out), nn.ReLU(), second, nn.BatchNorm2d(out))

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.stage2(self.stage1(images).relu()).relu().mean((2, 3)))


def staged_net(dtype=torch.float32, seed=0) -> StagedNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = StagedNet().double()
        net.train()
        for images in stream(("all", "some", "some"), torch.float64, seed=100):
            net(images)
        set_head(net)
    return net.eval().to(dtype)


@torch.no_grad()
def set_head(net: nn.Module) -> None:
    """Rows that tell the typical images apart: what each has that their mean has not. Logits are
    then far apart without being large, which is kind to float32."""
    seen = []
    hook = net.fc.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    for layer in net.modules():
        if isinstance(layer, nn.Dropout):
            layer.eval()
    net(typical_images())
    hook.remove()
    mean = seen[0].mean(0)
    rows = seen[0] - mean
    rows = rows - (rows @ mean)[:, None] * mean / (mean @ mean)
    net.fc.weight.copy_(12 * rows / (rows * rows).sum(1, keepdim=True))


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


def stream(kinds=KINDS, dtype=torch.float32, size=16, last=None, seed=1) -> list[Tensor]:
    """Batches of textured images: "none" are dark, "all" vary those behind the head's rows."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for index, kind in enumerate(kinds):
        count = last if last and index == len(kinds) - 1 else size
        images = textures(count, generator)
        if kind == "all":
            images = 0.85 * typical_images().repeat(size, 1, 1, 1)[:count] + 0.15 * images
        elif kind == "none":
            images = 0.02 * images
        else:
            images[::3] *= 0.02
        batches.append(images.to(dtype))
    return batches


def textures(count: int, generator: torch.Generator) -> Tensor:
    coarse = torch.rand(count, 3, 4, 4, generator=generator, dtype=torch.float64)
    return nn.functional.interpolate(coarse, (8, 8), mode="bilinear", align_corners=False)


def typical_images() -> Tensor:
    """One image a class: the head's rows are made from them."""
    return textures(CLASSES, torch.Generator().manual_seed(7))


def source_batches(dtype=torch.float32, batches=3, size=14, seed=50):
    images = stream(("some",) * batches, dtype, size, seed=seed)
    return [(batch, torch.arange(len(batch)) % CLASSES) for batch in images]


def images_of(batches):
    return [images for images, _ in batches]


def toy_source(net: nn.Module, size=14) -> holdfast.Source:
    """size: of a batch; the stream's are of 16."""
    dtype = next(net.parameters()).dtype
    return holdfast.Source.from_loader(net, source_batches(dtype, size=size))


def state_of(adapter: holdfast.Adapter) -> dict[str, Tensor]:
    """All that changes along a stream."""
    state = {name: tensor.clone() for name, tensor in adapter._state.tensors().items()}
    state["draws"] = adapter._state.draws.state
    return state | {name: tensor.clone() for name, tensor in adapter._state.extra_state().items()}


def assert_same_state(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


def inputs_of(net, images, layer):
    """What a layer of the source model sees, one entry for each time that it runs."""
    seen = []
    with (
        net.get_submodule(layer).register_forward_pre_hook(lambda _, x: seen.append(x[0])),
        torch.no_grad(),
    ):
        net(images)
    return seen
