"""Render the glyph masks that ship with the package, from freely licensed fonts.

Run once, on a machine with the fonts (Debian's packages are named in LICENSES.txt, which this
writes beside the atlas): python tools/make_glyph_atlas.py
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# No two characters that some font draws alike up to size: no 0, 1, lower-case c, o, s, …
CLASSES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ23456789abdefghnqrt&@#%?"
SIDE = 28
LEVELS = 16
FONTS = Path("/usr/share/fonts")
TARGET = Path(__file__).parents[1] / "src/holdfast/data/glyphs"

OFL = "SIL Open Font License 1.1"
OFL_1 = "SIL Open Font License 1.0"
APACHE = "Apache License 2.0"
VERA = "Bitstream Vera licence, changes in the public domain"


class Font(NamedTuple):
    file: str
    package: str
    licence: str


ALL = (
    Font("truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core", VERA),
    Font("truetype/dejavu/DejaVuSerif-Bold.ttf", "fonts-dejavu-core", VERA),
    Font("truetype/liberation2/LiberationSerif-Regular.ttf", "fonts-liberation2", OFL),
    Font("truetype/liberation2/LiberationMono-Bold.ttf", "fonts-liberation2", OFL),
    Font("truetype/liberation2/LiberationSans-Italic.ttf", "fonts-liberation2", OFL),
    Font("truetype/lato/Lato-Light.ttf", "fonts-lato", OFL),
    Font("truetype/lato/Lato-Black.ttf", "fonts-lato", OFL),
    Font("truetype/comfortaa/Comfortaa-Regular.ttf", "fonts-comfortaa", OFL),
    Font("opentype/cabin/Cabin-Medium.otf", "fonts-cabin", OFL),
    Font("opentype/lobstertwo/LobsterTwo-Regular.otf", "fonts-lobstertwo", OFL),
    Font("truetype/vollkorn/Vollkorn-Bold.ttf", "fonts-vollkorn", OFL),
    Font("opentype/yanone-kaffeesatz/YanoneKaffeesatz-Regular.otf", "fonts-yanone-kaffeesatz", OFL),
    Font("opentype/courier-prime/Courier Prime.otf", "fonts-courier-prime", OFL),
    Font("opentype/cantarell/Cantarell-ExtraBold.otf", "fonts-cantarell", OFL),
    Font("opentype/league-spartan/LeagueSpartan-Black.otf", "fonts-league-spartan", OFL),
    Font("opentype/ebgaramond/EBGaramond12-Italic.otf", "fonts-ebgaramond", OFL),
    Font("truetype/crosextra/Caladea-Bold.ttf", "fonts-crosextra-caladea", OFL),
    Font("opentype/dancingscript/DancingScript-Bold.otf", "fonts-dancingscript", OFL),
    Font("truetype/quicksand/Quicksand-Medium.ttf", "fonts-quicksand", OFL),
    Font("truetype/open-sans/OpenSans-CondBold.ttf", "fonts-open-sans", APACHE),
    Font("truetype/roboto/unhinted/RobotoTTF/Roboto-Medium.ttf", "fonts-roboto-unhinted", APACHE),
    Font("truetype/gentium-basic/GenBasI.ttf", "fonts-sil-gentium-basic", OFL),
    Font("opentype/linux-libertine/LinBiolinum_RB.otf", "fonts-linuxlibertine", OFL),
    Font("truetype/inconsolata/Inconsolata.otf", "fonts-inconsolata", OFL_1),
)


def render(font: Font, character: str) -> np.ndarray:
    """One mask: the character's box in the middle, a border left free, 16 levels of grey."""
    # Drawn four times as large and shrunk, so that no font's hinting for small sizes shows.
    face = ImageFont.truetype(str(FONTS / font.file), 4 * 30)
    left, top, right, bottom = face.getbbox(character)
    large = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(large).text((-left, -top), character, fill=255, font=face)
    fit = min(1.0, (SIDE - 4) / (max(large.size) / 4)) / 4
    size = (max(1, round(large.width * fit)), max(1, round(large.height * fit)))
    mask = Image.new("L", (SIDE, SIDE))
    mask.paste(
        large.resize(size, Image.Resampling.BOX), ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2)
    )
    return np.round(np.asarray(mask) / 255 * (LEVELS - 1)).astype(np.uint8)


def main() -> None:
    masks = np.stack([np.stack([render(font, character) for character in CLASSES]) for font in ALL])
    np.savez_compressed(TARGET / "atlas.npz", masks=masks)
    rows = "\n".join(
        f"{Path(font.file).stem}: {font.licence} (Debian: {font.package})" for font in ALL
    )
    (TARGET / "LICENSES.txt").write_text(
        "atlas.npz holds small pictures of characters, rendered by tools/make_glyph_atlas.py from\n"
        "the fonts below. It holds no font. Each font's licence admits this; the licences' texts\n"
        "are at openfontlicense.org, apache.org/licenses and dejavu-fonts.github.io.\n\n"
        f"{rows}\n"
    )
    print(f"{masks.shape} masks, {(TARGET / 'atlas.npz').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
