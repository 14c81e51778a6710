import pytest
from drifting import calibrated, home_net


@pytest.fixture(scope="module")
def home():
    """A net at home on clean images, and a source that health can be estimated with."""
    net = home_net()
    return net, calibrated(net)
