"""Train the network that ships with glyphs-c anew: python tools/train_glyphs.py [FILE].

What ships stays as it is, unless it is the file that is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.data import glyphs
from holdfast.util.progress import progress

EPOCHS = 3
BATCH = 128
RATE = 0.2


def train(target: Path, seed: int = 0) -> float:
    """Train on the train split, write the weights, and say the accuracy on the test split."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = glyphs.model(trained=False).train()
    fit(network, seed)
    weights = network.model.state_dict().items()
    half = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights
    }
    save_file({name: tensor.contiguous() for name, tensor in half.items()}, target)
    network.model.load_state_dict(half)  # what is measured is what was written
    return accuracy(network.eval())


def fit(network: nn.Module, seed: int) -> None:
    """SGD with Nesterov's momentum; the rate rises, then falls to nothing. The images are as
    varied as augmentation would make them, so there is none."""
    size = glyphs.SIZES["train"]
    # 150 MB, and quicker than composing each image in each epoch.
    images = torch.cat([glyphs.Glyphs("train").raw(part.tolist()) for part in _parts(size)])
    steps = EPOCHS * (size // BATCH)
    optimizer = torch.optim.SGD(
        network.parameters(), RATE, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    with progress("Training", steps * BATCH) as advance:
        for step in range(steps):
            batch = step % (size // BATCH)
            if batch == 0:
                shuffled = torch.randperm(size, generator=order)
            chosen = shuffled[batch * BATCH : (batch + 1) * BATCH]
            shown = (images[chosen].float() / 255).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(network(shown), glyphs.labels("train", chosen))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            advance(BATCH)


@torch.no_grad()
def accuracy(network: nn.Module) -> float:
    size = glyphs.SIZES["test"]
    right = sum(
        int((network(glyphs.images("test", part)).argmax(1) == glyphs.labels("test", part)).sum())
        for part in _parts(size)
    )
    return right / size


def _parts(size: int) -> list[Tensor]:
    return [torch.arange(start, min(start + 500, size)) for start in range(0, size, 500)]


def main() -> None:
    target = Path(*sys.argv[1:2] or ["glyphs.safetensors"])
    print(f"Clean test accuracy {train(target):.2%}; weights in {target}")


if __name__ == "__main__":
    main()
