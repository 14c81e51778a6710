import pytest
from follow import TOLERANCE, close
from toys import stream, toy_net

import holdfast


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_frozen_is_the_source_model(dtype):
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, "frozen")
    for images in stream(dtype=dtype, last=1):
        close(adapter(images), net(images), dtype, "logits")
    assert not adapter.last.stepped
