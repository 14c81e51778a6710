import pytest
from toys import toy_source

import holdfast


@pytest.fixture(scope="module")
def source(net):
    return toy_source(net, 16)


@pytest.fixture
def adapt(net, source):
    def make(spec, **options):
        return holdfast.adapt(net, spec, source=source, **options)

    return make
