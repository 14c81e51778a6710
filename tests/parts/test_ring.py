import pytest
import torch

from holdfast.parts import Ring
from holdfast.parts.ring import SPARE


def filled(sizes, *, size=10, lags=False):
    """Rows are numbered as they come; what is held after each batch."""
    ring, number, held = Ring(size, torch.zeros(()), torch.zeros(2), lags=lags), 0, []
    for count in sizes:
        rows = torch.arange(number, number + count).float()
        places = ring.places(count)
        ring.write(rows, rows[:, None].expand(-1, 2))
        number += count
        assert torch.equal(ring.rows()[0][places], rows[-len(places) :])
        assert torch.equal(ring.rows()[1], ring.rows()[0][:, None].expand(-1, 2))
        held.append(ring.rows()[0].int().tolist())
    return held


def test_the_newest_rows_are_held():
    number = 0
    for count, rows in zip((4, 4, 4, 3, 25, 1), filled((4, 4, 4, 3, 25, 1)), strict=True):
        number += count
        assert sorted(rows) == list(range(max(0, number - 10), number))


def test_a_ring_that_lags_overwrites_the_newest_first():
    """Of batches of 4 and a size of 10: the third is taken in whole, the fourth replaces it."""
    held = filled((4, 4, 4, 4, 4, 2), lags=True)
    assert held[2] == list(range(12))
    assert held[3] == [*range(8), 12, 13, 14, 15]
    assert held[4] == [16, 17, 18, 19, *range(4, 8), 12, 13, 14, 15]
    assert held[5] == [16, 17, 18, 19, 20, 21, 6, 7, 12, 13, 14, 15]


def test_batches_that_a_lagging_ring_has_no_room_for():
    Ring(4, torch.zeros(()), lags=True).check(SPARE + 1)
    Ring(4, torch.zeros(())).check(10**6)
    with pytest.raises(ValueError, match=r"up to 1024 images at once, not 1025.*ring=oldest"):
        Ring(4, torch.zeros(()), lags=True).check(SPARE + 2)


def test_the_shape_is_there_from_the_start():
    ring = Ring(7, torch.zeros(3), torch.zeros((), dtype=torch.int64))
    before = {name: tensor.shape for name, tensor in ring.state_dict().items()}
    ring.write(torch.rand(5, 3), torch.arange(5))
    assert {name: tensor.shape for name, tensor in ring.state_dict().items()} == before
