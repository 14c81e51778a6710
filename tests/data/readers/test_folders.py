"""Folders of images: ImageNet-C as it is, other images resized and cropped; lists; bad images."""

import re
import traceback

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from holdfast.data.readers import sets
from holdfast.data.readers.folders import read_folder, resize_and_crop
from holdfast.data.readers.sets import open_clean, open_data

CLASSES = ("n01", "n02", "n03")
FILES = ("n01/a.JPEG", "n02/b.JPEG", "n02/c.JPEG", "n03/d.JPEG")


def write(path, value=100, size=(224, 224)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value // 2, 20)).save(path)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """ImageNet-C with three corruptions, and clean images of other sizes."""
    monkeypatch.setattr(sets, "IMAGENET_CLASSES", 3)
    for place, name in enumerate(("fog", "snow", "frost")):
        for severity in (4, 5):
            for file in FILES:
                write(tmp_path / "ImageNet-C" / name / str(severity) / file, 50 * place + severity)
    for file in FILES:
        write(tmp_path / "imagenet/val" / file, 200, (300, 400))
    return tmp_path


def open_three(root, **options):
    return open_data("imagenet-c", root, corruptions=["fog", "snow", "frost"], **options)


def test_imagenet_c_is_read_as_it_is_and_clean_images_are_cropped(root):
    found = open_three(root, severity=4)
    assert [domain.name for domain in found.domains] == ["fog", "snow", "frost", "original"]
    assert found.classes == 3
    for place, (domain, red) in enumerate(zip(found.domains, (4, 54, 104, 200), strict=True)):
        assert domain.dataset.labels.tolist() == [0, 1, 1, 2], place
        images = domain.dataset.images(range(4))
        assert images.shape == (4, 3, 224, 224)
        assert abs(255 * images[:, 0].mean().item() - red) < 2


def test_a_list_names_images_in_its_order_with_either_line_ending(root, tmp_path):
    for end in ("\n", "\r\n"):
        (tmp_path / "list.txt").write_text(end.join(["n03/d.JPEG", "n01/a.JPEG"]) + end, newline="")
        found = open_three(root, images=tmp_path / "list.txt")
        for domain in found.domains:
            assert domain.dataset.labels.tolist() == [2, 0]
            assert domain.dataset.file_name(0) == "n03/d.JPEG"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n01\n", "list.txt, line 1: expected class/file, found 'n01'"),
        ("n01/a.JPEG\nn01/../x\n", "list.txt, line 2: expected class/file"),
        ("n01/a.JPEG\nn04/a.JPEG\n", "list.txt, line 2: there is no class folder 'n04'."),
        ("n01/z.JPEG\n", "There is no image {root}/ImageNet-C/fog/5/n01/z.JPEG"),
        ("\n", "list.txt names no images"),
        (None, "There is no file"),
    ],
)
def test_bad_lists_are_named(root, tmp_path, text, message):
    if text is not None:
        (tmp_path / "list.txt").write_text(text)
    with pytest.raises((ValueError, OSError), match=re.escape(message.format(root=root))):
        open_three(root, images=tmp_path / "list.txt")


def test_bad_sets_are_named(root):
    write(root / "ImageNet-C/snow/5/n02/extra.JPEG")
    with pytest.raises(
        ValueError, match=r"snow/5 holds 5 images, other domains 4.*n02/extra\.JPEG"
    ):
        open_three(root)
    (root / "ImageNet-C/snow/5/n02/extra.JPEG").unlink()
    with pytest.raises(FileNotFoundError, match=r"ImageNet-C lacks snow/3, frost/3|lacks fog/3"):
        open_three(root, severity=3)
    (root / "imagenet/val/n01/a.JPEG").unlink()
    with pytest.raises(FileNotFoundError, match=r"There is no image .*imagenet/val/n01/a\.JPEG"):
        open_three(root)
    with pytest.raises(FileNotFoundError, match=r"lacks gaussian_noise/5, shot_noise/5"):
        open_data("imagenet-c", root)
    for name in ("fog", "snow", "frost"):
        (root / f"ImageNet-C/{name}/5/n01/a.JPEG").unlink()
        (root / f"ImageNet-C/{name}/5/n01").rmdir()
    with pytest.raises(
        ValueError, match=r"ImageNet-C has 2 classes; expected ImageNet's 3.*classes="
    ):
        open_three(root, clean=False)


def test_a_file_of_class_names_gives_the_labels(root, tmp_path):
    (tmp_path / "names.txt").write_text("n03\nn02\nn01\n")
    found = open_clean("imagenet", root, classes=tmp_path / "names.txt")
    assert dict(zip(map(found.file_name, range(4)), found.labels.tolist(), strict=True)) == {
        "n03/d.JPEG": 0,
        "n02/b.JPEG": 1,
        "n02/c.JPEG": 1,
        "n01/a.JPEG": 2,
    }


def test_the_field_s_groups_of_folders_are_found(root):
    (root / "ImageNet-C/weather").mkdir()
    (root / "ImageNet-C/extra").mkdir()
    (root / "ImageNet-C/fog").rename(root / "ImageNet-C/weather/fog")
    assert len(open_three(root)["fog"]) == 4
    (root / "ImageNet-C/snow").rename(root / "ImageNet-C/extra/spatter")
    held = open_data("imagenet-c", root, corruptions=["spatter"])
    assert [domain.name for domain in held.domains] == ["spatter", "original"]
    alone = open_data(root / "ImageNet-C/extra", corruptions=["spatter"], clean=False)
    assert len(alone["spatter"]) == 4


def test_images_of_another_size_are_not_resized_a_second_time(root):
    path = root / "ImageNet-C/fog/5/n01/a.JPEG"
    write(path, size=(256, 256))
    found = open_three(root)["fog"]
    with pytest.raises(ValueError, match=rf"{path} has 256×256 pixels; expected 224×224"):
        found[0]


def test_bad_images_are_named_also_by_workers(root):
    path = root / "ImageNet-C/fog/5/n02/b.JPEG"
    found = open_three(root)["fog"]
    path.write_bytes(path.read_bytes()[:-200])
    for spoilt in (path.read_bytes()[:600], b"<html>404</html>", b""):
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=rf"{path} is not an image, or is cut short"):
            found[1]
        with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
            list(DataLoader(found, 4, num_workers=1, timeout=200))
        # Left to the garbage collector, a worker that met an error is waited for.
        traceback.clear_frames(caught.tb)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"There is no image {path}"):
        found[1]


def test_a_plain_folder_is_a_clean_set(tmp_path):
    write(tmp_path / "cats/1.png", 10, (64, 48))
    write(tmp_path / "dogs/2.PNG", 90, (48, 64))
    (tmp_path / "dogs/notes.txt").write_text("not an image")
    found = open_data(tmp_path, size=32, corruptions=["contrast"])
    assert [domain.name for domain in found.domains] == ["contrast", "original"]
    assert found.classes == 2 and found["original"].labels.tolist() == [0, 1]
    assert found["original"].images([0, 1]).shape == (2, 3, 32, 32)
    as_they_are = read_folder(tmp_path, size=None)
    assert as_they_are[0][0].shape == (3, 48, 64)


def test_classes_may_be_called_like_corruptions(tmp_path):
    for name in ("fog", "snow", "weather/frost"):
        write(tmp_path / name / "1.png", 10, (64, 48))
    write(tmp_path / "weather/1.png", 10, (64, 48))
    found = open_data(tmp_path, size=32, corruptions=["contrast"])
    assert [domain.name for domain in found.domains] == ["contrast", "original"]
    assert found["original"].names == ("fog", "snow", "weather")


def test_other_formats_are_not_tried(tmp_path):
    (tmp_path / "cats").mkdir()
    Image.new("L", (40, 40)).save(tmp_path / "cats/1.png", "GIF")
    with pytest.raises(ValueError, match=r"cats/1\.png is not an image"):
        read_folder(tmp_path)[0]


def test_empty_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} has no folders"):
        open_clean(tmp_path)
    (tmp_path / "cats").mkdir()
    with pytest.raises(ValueError, match=f"{tmp_path} holds no images"):
        open_clean(tmp_path)
    with pytest.raises(ValueError, match=r"no set, folder or \.npz file cifar1000\. Did you mean"):
        open_clean("cifar1000", tmp_path)


@pytest.mark.parametrize(
    ("size", "resized", "corner"),
    [
        ((500, 375), (341, 256), (58, 16)),
        ((375, 500), (256, 341), (16, 58)),
        ((301, 256), (301, 256), (38, 16)),
    ],
)
def test_resize_and_crop_follow_torchvision(size, resized, corner):
    """Shorter side to 256, the longer cut to whole pixels, the crop's corner rounded to even."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    left, top = corner
    expected = picture.resize(resized, Image.Resampling.BILINEAR).crop(
        (left, top, left + 224, top + 224)
    )
    assert np.array_equal(np.asarray(resize_and_crop(picture, 224)), np.asarray(expected))


def test_grey_and_transparent_images_become_rgb(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("L", (40, 40), 51).save(tmp_path / "a/1.png")
    Image.new("RGBA", (40, 40), (255, 0, 0, 9)).save(tmp_path / "a/2.png")
    found = read_folder(tmp_path, size=32)
    assert torch.equal(found[0][0], torch.full((3, 32, 32), 0.2))
    assert found[1][0][0].min() == 1 and found[1][0][1:].max() == 0
