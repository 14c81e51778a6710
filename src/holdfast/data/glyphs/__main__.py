"""`python -m holdfast.data.glyphs train [FILE]`: train the shipped network anew."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.data import glyphs
from holdfast.data.glyphs.train import train


def main() -> None:
    match sys.argv[1:]:
        case ["train"]:
            target = glyphs.WEIGHTS
        case ["train", file]:
            target = Path(file)
        case _:
            sys.exit("Usage: python -m holdfast.data.glyphs train [FILE]")
    print(f"Clean test accuracy {train(target):.2%}; weights in {target}")


if __name__ == "__main__":
    main()
