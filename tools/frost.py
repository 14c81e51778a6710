"""Draws the windows of ice that ship with holdfast, for the frost corruption.

    python tools/frost.py

They are drawings: feathers of ice over clouds, with grain. No photograph is used. They have about
the brightness, contrast and share of fine detail of the ice in the benchmark's photographs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

FOLDER = Path(__file__).parents[1] / "src/holdfast/data/corrupt/textures"
SIDE, FINE = 480, 2  # drawn at twice the size
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    tint: tuple[float, float, float]  # mean of red, green, blue
    contrast: float  # standard deviation of brightness
    feathers: int
    length: float  # of a feather, in pixels
    clouds: float  # share of contrast that is smooth
    grain: float


WINDOWS = (
    Window((0.34, 0.57, 0.63), 0.09, 260, 90, 0.60, 0.30),
    Window((0.79, 0.81, 0.84), 0.09, 900, 60, 0.45, 0.25),
    Window((0.74, 0.78, 0.82), 0.10, 500, 110, 0.45, 0.25),
    Window((0.54, 0.60, 0.65), 0.12, 1600, 24, 0.40, 0.35),
    Window((0.44, 0.48, 0.53), 0.17, 1300, 45, 0.40, 0.20),
)


def clouds(rng: np.random.Generator, slope: float) -> Array:
    """Noise whose amplitude falls with frequency to the power `slope`."""
    down, across = np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)
    frequency = np.maximum(np.hypot(down, across), 1 / SIDE)
    spectrum = np.fft.rfft2(rng.standard_normal((SIDE, SIDE))) / frequency**slope
    return standard(np.fft.irfft2(spectrum, s=(SIDE, SIDE)))


def feathers(rng: np.random.Generator, window: Window) -> Array:
    """Spines with barbs on both sides, later ones over earlier ones, as ice grows."""
    canvas = Image.new("L", (SIDE * FINE, SIDE * FINE), 90)
    draw = ImageDraw.Draw(canvas)
    for _ in range(window.feathers):
        x, y = rng.uniform(-0.1, 1.1, 2) * SIDE * FINE
        feather(draw, rng, x, y, window.length * FINE * rng.uniform(0.4, 1.4))
    return standard(np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX), float))


def feather(
    draw: ImageDraw.ImageDraw, rng: np.random.Generator, x: float, y: float, length: float
) -> None:
    heading, bend = rng.uniform(0, 2 * math.pi), rng.normal(0, 0.15)
    spread, light = rng.uniform(0.5, 1.0), rng.uniform(60, 255)
    steps = max(4, int(length / 6))
    for step in range(steps):
        remaining = 1 - step / steps
        end = (x + math.cos(heading) * length / steps, y + math.sin(heading) * length / steps)
        draw.line((x, y, *end), fill=int(light), width=1 + round(2 * remaining))
        for side in (-1, 1):
            barb = 0.3 * length * remaining * rng.uniform(0.5, 1)
            way = heading + side * spread
            tip = (x + math.cos(way) * barb, y + math.sin(way) * barb)
            draw.line((x, y, *tip), fill=int(light * rng.uniform(0.5, 1)), width=2)
        (x, y), heading = end, heading + bend / steps


def standard(values: Array) -> Array:
    return (values - values.mean()) / values.std()


def draw(window: Window, seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    ice = window.clouds * clouds(rng, 1.6) + (1 - window.clouds) * feathers(rng, window)
    ice = standard(ice + window.grain * clouds(rng, 0.3))
    hue = 0.015 * clouds(rng, 1.8)[..., None] * np.array([-1, 0, 1])
    colour = np.array(window.tint) + window.contrast * ice[..., None] + hue
    return Image.fromarray((colour.clip(0, 1) * 255).round().astype(np.uint8))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for number, window in enumerate(WINDOWS, 1):
        path = FOLDER / f"frost{number}.jpg"
        draw(window, number).save(path, quality=50, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
