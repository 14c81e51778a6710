"""What the streams take from papers: whom their settings cite, and orders of the corruptions."""

from __future__ import annotations

import numpy as np

from holdfast.data.corrupt.tables import CORRUPTIONS
from holdfast.util.words import listed

PAPERS = {
    "debias": "Chung, Hwang, Yoo, Kwak, Mitigating the bias in the model for continual test-time "
    "adaptation, arXiv 2403.01344",
    "CoTTA": "Wang et al. 2022, Continual test-time domain adaptation, arXiv 2203.13591",
    "RMT": "Döbler et al. 2023, Robust mean teacher for continual and gradual test-time "
    "adaptation, arXiv 2211.13081",
    "SAR": "Niu et al. 2023, Towards stable test-time adaptation in dynamic wild world, "
    "arXiv 2302.12400",
    "RoTTA": "Yuan et al. 2023, Robust test-time adaptation in dynamic scenarios, arXiv 2303.13899",
    "NOTE": "Gong et al. 2022, NOTE: Robust continual test-time adaptation against temporal "
    "correlation, arXiv 2208.05117",
    "PeTTA": "Hoang et al. 2024, Persistent test-time adaptation in recurring testing scenarios, "
    "arXiv 2311.18193",
    "SoTTA": "Gong et al. 2023, SoTTA: Robust test-time adaptation on noisy data streams, "
    "arXiv 2310.10074",
    "CCC": "Press et al. 2023, RDumb: A simple approach that questions our progress in continual "
    "test-time adaptation, arXiv 2306.05401",
    "Alfarra et al.": "Alfarra et al. 2024, Evaluation of test-time adaptation under computational "
    "time constraints, arXiv 2304.04795",
}

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

_WORDS = {name.split("_")[0]: name for name in CORRUPTIONS}
_COTTA_ORDERS = [
    tuple(_WORDS[word] for word in line.split()) for line in _COTTA.strip().splitlines()
]
ORDERS = {
    "paper": CORRUPTIONS,
    "rotta": _COTTA_ORDERS[5],  # Yuan et al. 2023 took the sixth of CoTTA's
    **{f"cotta{number}": order for number, order in enumerate(_COTTA_ORDERS)},
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
