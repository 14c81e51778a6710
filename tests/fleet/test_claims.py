"""Two processes on one folder: a stream belongs to one of them, and never goes on in two ways."""

import multiprocessing

import pytest
import torch
from toys import toy_net

import holdfast
from holdfast.fleet.claims import Claims
from holdfast.fleet.folder import TakenOverError


def images(seed):
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def fleet(path, **options):
    return holdfast.Fleet(toy_net(), "tent(lr=0.1)", folder=path, **options)


def replayed(*seeds):
    """What an adapter that saw just these batches, in this order, says next."""
    adapter = holdfast.adapt(toy_net(), "tent(lr=0.1)")
    for seed in seeds:
        adapter(images(seed))
    return adapter.predict(images(99))


def test_whoever_took_it_last_owns_it_and_the_other_cannot_write(tmp_path):
    first, second = fleet(tmp_path), fleet(tmp_path)
    first("a", images(0))
    first.save()
    second("a", images(1))
    second.save()
    written = {path: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    # The first has it in memory, older than the file.
    first._seats["a"].notes["late"] = True
    with pytest.raises(TakenOverError, match="one process"):
        first.save("a")
    assert {path: path.read_bytes() for path in tmp_path.glob("*.safetensors")} == written
    # Asked again it goes on from what the second has saved, and owns it.
    torch.testing.assert_close(first.predict("a", images(99)), replayed(0, 1))
    first("a", images(2))
    first.save()
    second("a", images(3))  # nothing of it was lost, so that there is nothing to warn of
    torch.testing.assert_close(second.predict("a", images(99)), replayed(0, 1, 2, 3))


def test_a_stream_that_was_taken_over_is_left_to_the_other_with_a_warning(tmp_path):
    first, second = fleet(tmp_path), fleet(tmp_path)
    first("a", images(0))
    first.save()
    second("a", images(1))
    second.save()
    first._seats["a"].notes["unsaved"] = 1
    with pytest.warns(UserWarning, match="a: another process has taken it over"):
        first("a", images(2))
    torch.testing.assert_close(first.predict("a", images(99)), replayed(0, 1, 2))


def test_looking_takes_nothing_over(tmp_path):
    owner, guest = fleet(tmp_path), fleet(tmp_path)
    owner("a", images(0))
    owner.save()
    torch.testing.assert_close(guest.predict("a", images(99)), replayed(0))
    guest.health("a")
    guest.last("a")
    owner("a", images(1))
    owner.save()
    torch.testing.assert_close(guest.predict("a", images(99)), replayed(0, 1))


def test_two_that_begin_a_stream_of_one_name_do_not_both_write_it(tmp_path):
    first, second = fleet(tmp_path), fleet(tmp_path)
    first("a", images(0))
    first("b", images(0))
    second("a", images(1))
    with pytest.raises(TakenOverError):
        first.save()
    second.save()
    torch.testing.assert_close(fleet(tmp_path).predict("a", images(99)), replayed(1))
    # The other streams were saved all the same.
    torch.testing.assert_close(fleet(tmp_path).predict("b", images(99)), replayed(0))


def test_one_that_begins_while_another_writes_the_first_state_goes_on_from_it(tmp_path):
    first, second = fleet(tmp_path), fleet(tmp_path)
    begin = second._folder.begin

    def late(stream):
        """By now, the other is done."""
        first(stream, images(0))
        first.save(stream)
        return begin(stream)

    second._folder.begin = late
    second("a", images(1))
    torch.testing.assert_close(second.predict("a", images(99)), replayed(0, 1))
    with pytest.raises(ValueError, match="There is a stream 'b' already"):
        second.add("b")


def test_images_that_are_refused_leave_no_claim(tmp_path):
    with pytest.raises(ValueError, match=r"0.*1"):
        fleet(tmp_path)("a", images(0) * 255)
    assert list(tmp_path.glob("a*")) == []


def test_one_that_was_taken_over_does_not_stand_in_the_way_of_others(tmp_path):
    first, second = fleet(tmp_path, resident=1), fleet(tmp_path)
    first("a", images(0))
    first.save()
    second("a", images(1))
    first._seats["a"].notes["unsaved"] = 1
    with pytest.warns(UserWarning, match="taken it over"):
        first("b", images(2))
    torch.testing.assert_close(first.predict("b", images(99)), replayed(2))


def test_removing_ends_every_claim(tmp_path):
    first, second = fleet(tmp_path), fleet(tmp_path)
    first("a", images(0))
    first.save()
    second("a", images(1))
    second.remove("a")
    assert list(tmp_path.glob("a*")) == []
    first._seats["a"].notes["late"] = True
    with pytest.raises(TakenOverError):
        first.save("a")


def take_many(folder, count):
    claims, taken = Claims(folder), 0
    for _ in range(count):
        with claims.alone("a"):
            claims.take("a")
            taken += claims.owns("a")
    return taken


def test_no_two_owners_at_once_and_no_turn_is_lost(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        taken = pool.starmap(take_many, [(tmp_path, 40)] * 3)
    assert taken == [40] * 3
    assert Claims(tmp_path).generation("a") == 120


def test_a_damaged_owner_file_is_nobodys_and_can_be_taken(tmp_path):
    claims = Claims(tmp_path)
    claims.take("a")
    (tmp_path / "a.owner").write_text("\x00 nonsense")
    assert not claims.owns("a")
    claims.take("a")
    assert claims.owns("a") and claims.generation("a") == 1
