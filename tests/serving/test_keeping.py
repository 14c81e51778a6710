"""When streams are saved: in time, the oldest first, and a little between two steps."""

import pytest

from holdfast.serving import keeping
from holdfast.serving.keeping import AGAIN, EARLY, SHARE, URGENT, Keeper
from holdfast.serving.tally import Tally


class Disk:
    """Takes some time for each stream that is saved."""

    def __init__(self, clock, seconds=0.0):
        self.clock, self.seconds = clock, seconds
        self.saved, self.full = [], False

    def save(self, stream):
        if self.full:
            raise OSError("no space left")
        self.clock.now += self.seconds
        self.saved.append(stream)


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(keeping, "time", clock)
    return clock


def test_a_stream_is_saved_early_and_counts_from_its_first_change(clock):
    disk = Disk(clock)
    keeper = Keeper(disk, 10.0, Tally())
    assert keeper.next() is None and keeper.age() == 0
    keeper.changed("a")
    clock.now = 2.0
    keeper.changed("a")
    assert keeper.next() == EARLY * 10 and keeper.age() == 2
    keeper.save_due()
    assert disk.saved == [] and "a" in keeper
    clock.now = EARLY * 10
    keeper.save_due()
    assert disk.saved == ["a"] and "a" not in keeper and keeper.next() is None


def test_many_are_saved_a_little_at_a_time_until_it_presses(clock):
    disk = Disk(clock, seconds=0.4 * SHARE)
    keeper = Keeper(disk, 10.0, Tally())
    streams = [f"s{index}" for index in range(100)]
    for stream in streams:
        keeper.changed(stream)
    clock.now = EARLY * 10
    keeper.save_due()
    assert disk.saved == streams[:3]  # the share, and the one that began within it
    clock.now = URGENT * 10
    keeper.save_due()
    assert disk.saved == streams


def test_the_oldest_goes_first(clock):
    disk = Disk(clock)
    keeper = Keeper(disk, 10.0, Tally())
    for stream in "cab":
        keeper.changed(stream)
        clock.now += 1
    keeper.save("c")
    keeper.changed("c")
    clock.now = 99.0
    keeper.save_due()
    assert disk.saved == ["c", "a", "b", "c"]


def test_a_full_disk_is_tried_again_later_and_the_age_stays_true(clock):
    disk, tally = Disk(clock), Tally()
    keeper = Keeper(disk, 10.0, tally)
    keeper.changed("a")
    clock.now, disk.full = 8.0, True
    keeper.save_due()
    keeper.save_due()
    assert tally.unsaved == 1 and keeper.age() == 8 and keeper.next() == 8 + AGAIN
    clock.now, disk.full = 8.0 + AGAIN, False
    keeper.save_due()
    assert disk.saved == ["a"] and keeper.age() == 0


def test_where_steps_take_long_saving_comes_before_the_one_that_would_make_it_late(clock):
    disk = Disk(clock)
    keeper = Keeper(disk, 10.0, Tally())
    keeper.changed("a")
    for _ in range(4):
        clock.now += 3.0
        keeper.save_due(step=3.0)
    assert disk.saved == ["a"]
    keeper.changed("b")
    clock.now += 3.0
    keeper.save_due(step=3.0)
    assert "b" in keeper
    clock.now += 1.0
    assert keeper.next() == clock.now
    keeper.save_due(step=3.0)
    assert "b" not in keeper
    keeper.changed("c")
    keeper.save_due(step=99.0)  # each step is longer than the interval: after each, all is saved
    assert disk.saved == ["a", "b", "c"]
