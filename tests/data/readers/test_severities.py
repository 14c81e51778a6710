"""A set at severities of their own, as gradual and endless streams ask for them."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data.readers.sets import open_data
from holdfast.data.streams import parse

COUNT = 4


@pytest.fixture
def files(tmp_path):
    """Fog whose images are filled with ten times the severity."""
    levels = np.repeat(np.arange(10, 60, 10, dtype=np.uint8), COUNT)
    images = np.broadcast_to(levels[:, None, None, None], (5 * COUNT, 16, 16, 3))
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays/fog.npy", images)
    np.save(tmp_path / "arrays/labels.npy", np.zeros(5 * COUNT, np.int64))
    for severity in range(1, 6):
        for number in range(COUNT):
            path = tmp_path / f"folders/fog/{severity}/one/{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (10 * severity,) * 3).save(path)
    return tmp_path


@pytest.mark.parametrize("layout", ["arrays", "folders"])
def test_files_hold_whole_severities_of_one_corruption(files, layout):
    found = open_data(files / layout, corruptions=["fog"], severity=5.0, clean=False, size=16)
    for severity in (1, 3, 5.0, np.int64(4)):
        pool = found.at(("fog", severity))
        assert len(pool) == len(pool.labels) == COUNT
        assert (pool.images(range(COUNT)) * 255).round().unique().tolist() == [10 * severity]
    assert (found["fog"].image(0) * 255).round().unique().tolist() == [50]
    for layers in ([("fog", 2.5)], [("fog", 2), ("fog", 3)]):
        with pytest.raises(ValueError, match="open its clean set"):
            found.at(*layers)
    with pytest.raises(KeyError, match="has no domain 'original'"):
        found.at()
    with pytest.raises(ValueError, match=r"severity is a whole number from 1 to 5, not 5\.5"):
        open_data(files / layout, corruptions=["fog"], severity=5.5, clean=False)


def test_gradual_and_endless_name_what_a_set_lacks(files):
    found = open_data(files / "arrays", corruptions=["fog"], clean=False)
    for stream in ("gradual(order='fog,snow')", "endless(order='fog,snow')"):
        with pytest.raises(ValueError, match=r"shows .*snow.*has no domain 'snow'; it has fog"):
            parse(stream).over(found)
    assert len(parse("gradual(order=fog)").over(found)) == 9


def test_a_severity_without_a_folder_is_named(files):
    found = open_data(files / "folders", corruptions=["fog"], clean=False, size=16)
    (files / "folders/fog/2").rename(files / "two")
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*fog/2"):
        found.at(("fog", 2))


def test_a_clean_set_takes_any(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(COUNT))
    found = open_data(tmp_path / "set.npz", severity=2, seed=5)
    mild = open_data(tmp_path / "set.npz", severity=1, seed=5)
    every = range(COUNT)
    assert torch.equal(found.at(("snow", 1)).images(every), mild["snow"].images(every))
    assert torch.equal(found.at().images(every), found["original"].images(every))
    both = found.at(("snow", 1.5), ("fog", 2)).images(every)
    assert not torch.equal(both, found.at(("fog", 2)).images(every))
    with pytest.raises(ValueError, match="one severity only"):
        found["original"].at_severity(2)
