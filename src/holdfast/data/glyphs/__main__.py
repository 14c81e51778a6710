"""`python -m holdfast.data.glyphs train [FILE]`: train the shipped network anew.

What ships stays as it is, unless it is the file that is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.data.glyphs.train import train


def main() -> None:
    match sys.argv[1:]:
        case ["train"]:
            target = Path("glyphs.safetensors")
        case ["train", file]:
            target = Path(file)
        case _:
            sys.exit("Usage: python -m holdfast.data.glyphs train [FILE]")
    print(f"Clean test accuracy {train(target):.2%}; weights in {target}")


if __name__ == "__main__":
    main()
