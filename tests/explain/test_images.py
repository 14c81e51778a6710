"""Images for the doctor, out of files and folders."""

import pytest

from holdfast.explain.images import read_images


def test_a_folder_without_images_says_what_is_expected(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"holds no images: expected files .*\.png.*each class"):
        read_images(tmp_path, 8)
