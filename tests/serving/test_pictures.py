"""Picture files from outside: what is right is read exactly, all else refused before it costs."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.serving.errors import BadRequestError, ServingError, TooLargeError
from holdfast.serving.pictures import is_picture, read_picture


def encoded(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def noise(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def test_a_png_of_the_right_size_comes_as_it_is():
    pixels = noise(5, 5)
    image = read_picture(encoded(pixels), most=10, size=5)
    assert image.shape == (1, 3, 5, 5) and image.dtype == torch.float32
    expected = [[[pixels[y, x, c] / 255 for x in range(5)] for y in range(5)] for c in range(3)]
    torch.testing.assert_close(image[0], torch.tensor(expected, dtype=torch.float32))


def test_another_size_is_resized_and_cropped_in_the_middle():
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 18:42] = 200  # about the middle third, which alone is to be seen
    image = read_picture(encoded(pixels), most=100, size=8)
    assert image.shape == (1, 3, 8, 8)
    assert float(image.min()) > 0.7


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "LA", "I;16", "CMYK", "YCbCr"])
def test_every_kind_of_pixel_comes_as_colours(mode):
    kind = "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"
    file = io.BytesIO()
    Image.new(mode, (4, 4)).save(file, kind)
    assert read_picture(file.getvalue(), most=4, size=4).shape == (1, 3, 4, 4)


def test_a_picture_is_turned_as_its_camera_was_held():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0] = 255
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    image = read_picture(encoded(pixels, exif=turned), most=4, size=4)
    assert float(image[0, 0, 3].min()) == 1 and float(image[0, 0, 0].max()) == 0


def claiming(width, height):
    """A PNG whose header says so, with hardly any bytes behind it."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"IDAT", zlib.compress(bytes(99)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("width", "height"), [(11, 4), (30_000, 30_000), (2**31 - 1, 2**31 - 1)])
def test_what_claims_to_be_large_is_refused_before_it_is_decoded(width, height):
    with pytest.raises((TooLargeError, BadRequestError), match=r"smaller|damaged"):
        read_picture(claiming(width, height), most=10, size=4)


def test_a_thread_of_pixels_is_refused_since_resizing_would_blow_it_up():
    with pytest.raises(BadRequestError, match="16 times"):
        read_picture(encoded(noise(2, 100)), most=4096, size=224)


@given(st.integers(0, 10**6), st.sampled_from(["PNG", "JPEG"]), st.sampled_from(["cut", "flip"]))
def test_damaged_bytes_are_refused_or_read_and_nothing_else(place, kind, damage):
    whole = encoded(noise(9, 9), kind)
    place %= len(whole)
    if damage == "cut":
        body = whole[:place]
    else:
        body = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
    try:
        found = read_picture(body, most=16, size=9).shape
    except ServingError as error:
        found = error.status
    assert found in ((1, 3, 9, 9), 400, 413)


def test_a_file_that_is_cut_short_is_refused():
    whole = encoded(noise(40, 40), "JPEG")
    with pytest.raises(BadRequestError, match="cut short"):
        read_picture(whole[: len(whole) // 2], most=100, size=40)


def test_only_jpeg_and_png_are_taken():
    for kind in ("GIF", "BMP", "TIFF"):
        body = encoded(noise(4, 4), kind)
        assert not is_picture(body)
        with pytest.raises(BadRequestError):
            read_picture(body, most=10, size=4)
    assert is_picture(encoded(noise(4, 4))) and is_picture(encoded(noise(4, 4), "JPEG"))
