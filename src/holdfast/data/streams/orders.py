"""Orders in which the field shows the corruptions."""

from __future__ import annotations

import numpy as np

from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.util.words import listed

# Yuan et al. 2023; it is also the sixth of CoTTA's.
_ROTTA = "motion snow fog shot defocus contrast zoom brightness frost elastic glass gaussian pixelate jpeg impulse"  # noqa: E501

# Wang et al. 2022, the ten orders of the ImageNet-C experiments.
_COTTA = """
brightness pixelate gaussian motion zoom glass impulse jpeg defocus elastic shot frost snow fog contrast
jpeg shot zoom frost contrast fog defocus elastic gaussian brightness glass impulse pixelate snow motion
contrast defocus gaussian shot snow frost glass zoom elastic jpeg pixelate brightness impulse motion fog
shot fog glass pixelate snow elastic brightness impulse defocus frost contrast gaussian motion jpeg zoom
pixelate glass zoom snow fog impulse brightness motion frost jpeg gaussian shot contrast defocus elastic
motion snow fog shot defocus contrast zoom brightness frost elastic glass gaussian pixelate jpeg impulse
frost impulse jpeg contrast zoom glass pixelate snow defocus motion brightness elastic shot fog gaussian
glass zoom impulse fog snow jpeg gaussian frost shot brightness contrast motion pixelate defocus elastic
defocus motion zoom shot gaussian glass jpeg fog contrast pixelate frost snow brightness elastic impulse
contrast gaussian defocus zoom frost glass jpeg fog pixelate elastic shot impulse snow motion brightness
"""  # noqa: E501

_FULL = {name.split("_")[0]: name for name in CORRUPTIONS}


def _full(line: str) -> tuple[str, ...]:
    return tuple(_FULL[word] for word in line.split())


ORDERS = {
    "paper": CORRUPTIONS,
    "rotta": _full(_ROTTA),
    **{f"cotta{k}": _full(line) for k, line in enumerate(_COTTA.strip().splitlines())},
}
NAMES = (*ORDERS, "random")


def ordered(order: str, seed: int) -> tuple[str, ...]:
    """The domains in the order that a stream names. Any other text is one or more domains, which
    may be a data set's own: whether they are there shows when the data are known."""
    if order == "random":
        return tuple(np.random.default_rng(seed).permutation(CORRUPTIONS).tolist())
    if order in ORDERS:
        return ORDERS[order]
    names = tuple(name.strip() for name in order.split(","))
    if not all(names):
        raise ValueError(
            f"order={order!r} has an empty name. Orders: {listed(NAMES, 99)}; or domains with "
            f"commas between them, such as {listed(CORRUPTIONS, 99)}."
        )
    return names
