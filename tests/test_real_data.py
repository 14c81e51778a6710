"""With real images and a real pretrained net, where HOLDFAST_DATA has them."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import holdfast
from holdfast.models import resnet20

MEAN, STD = (0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)


def images_of(path, count):
    with np.load(path) as data:
        images, labels = data["images"][:count], data["labels"][:count]
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(
        labels
    ).long()


@pytest.fixture
def net(real_data):
    net = resnet20()
    net.load_state_dict(load_file(real_data / "cifar100_resnet20.safetensors"))
    return holdfast.normalized(net, MEAN, STD).eval()


def test_noise_hurts_and_batch_statistics_and_debias_help(net, real_data):
    images, labels = images_of(real_data / "cifar100_test.npz", 2_000)
    train, train_labels = images_of(real_data / "cifar100_train10k.npz", 2_000)
    loader = [(train[i : i + 100], train_labels[i : i + 100]) for i in range(0, 2_000, 100)]
    source = holdfast.Source.from_loader(net, loader)
    generator = torch.Generator().manual_seed(0)
    noisy = (images + 0.1 * torch.randn(images.shape, generator=generator)).clamp(0, 1)
    accuracy = {}
    for spec in ("frozen", "bn", "debias"):
        adapter = holdfast.adapt(net, spec, source=source)
        right = [
            (adapter(noisy[i : i + 64]).argmax(1) == labels[i : i + 64]).sum()
            for i in range(0, 2_000, 64)
        ]
        accuracy[spec] = int(sum(right)) / 20
    assert accuracy["frozen"] + 5 < accuracy["bn"] < accuracy["debias"]
