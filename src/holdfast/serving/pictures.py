"""JPEG and PNG bytes from outside, as images; nothing is decoded before its size is known."""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageOps
from torch import Tensor

from holdfast.data.images import as_floats, as_tensor
from holdfast.data.readers.folders import pixels_of, resize_and_crop
from holdfast.serving.errors import BadRequestError, ServingError, TooLargeError
from holdfast.util.words import first_line

FORMATS = ("JPEG", "PNG")
# The shorter side is resized to that of the model, and the longer one with it.
LONGEST = 16
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def is_picture(body: bytes) -> bool:
    return body.startswith(SIGNATURES)


def read_picture(body: bytes, most: int, size: int) -> Tensor:
    """One image, (1, 3, size, size) in [0, 1]; another size is resized and cropped, as images of
    folders are. most: pixels that a side may have."""
    try:
        with warnings.catch_warnings():
            # Sides are bounded here, and more tightly than pillow warns of.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(body), formats=FORMATS) as picture:
                check_sides(*picture.size, most)
                # Cameras store how they were held instead of turning the image.
                upright = ImageOps.exif_transpose(picture).convert("RGB")
    except ServingError:
        raise
    except Image.DecompressionBombError:
        raise TooLargeError(
            f"The image is larger than {most}×{most} pixels: send it smaller."
        ) from None
    except Exception as error:  # pillow raises nearly anything on bytes that are damaged
        raise BadRequestError(
            f"The image is cut short or damaged ({first_line(error)}): send all of a JPEG or PNG "
            "file, as curl --data-binary @photo.jpg does."
        ) from None
    if upright.size != (size, size):
        upright = resize_and_crop(upright, size)
    return as_floats(as_tensor(pixels_of(upright)))[None]


def check_sides(width: int, height: int, most: int) -> None:
    """Before a pixel is decoded."""
    if max(width, height) > LONGEST * min(width, height):
        raise BadRequestError(
            f"The image has {width}×{height} pixels: expected one that is at most {LONGEST} times "
            "as long as it is wide, since its centre is taken."
        )
    if max(width, height) > most:
        raise TooLargeError(
            f"The image has {width}×{height} pixels, and {most} are the most that a side may have: "
            "send it smaller, or start the server with a larger --max-side."
        )
