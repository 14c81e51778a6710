"""A fleet beside as many adapters."""

import torch
from toys import state_of


def assert_alike(fleet, adapters, tolerance):
    for name, adapter in adapters.items():
        fleet.health(name)  # puts its state in place
        found, expected = state_of(fleet._network), state_of(adapter)
        assert found.keys() == expected.keys()
        for tensor, value in expected.items():
            torch.testing.assert_close(
                found[tensor], value, atol=tolerance, rtol=tolerance, msg=f"{name} {tensor}"
            )
