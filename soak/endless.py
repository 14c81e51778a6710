"""An endless stream on the embedded network: memory stays flat."""

from __future__ import annotations

import time
import warnings

import torch

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse
from holdfast.util.progress import progress
from soak.memory import Meter
from soak.verdict import Verdict

# The first share of a stream, in which allocators and caches find their size.
WARM_UP = 0.05


def endless(
    images: int = 1_000_000,
    seed: int = 0,
    method: str = "eata+debias+steady",
    batch: int = 64,
    most_mb: float = 20.0,
    measurements: int = 100,
    source_images: int = 2_000,
) -> Verdict:
    """One corruption fades into the next, for a million images; resident memory must stay flat.

    images: how many come. seed: of stream and adapter. method: what adapts.
    most_mb: by how much resident memory may grow between warm-up and end, on the line that fits
    the measurements best; an image of 32×32 kept of every batch would make 190 MB.
    measurements: how many. source_images: what the source is made of.
    """
    torch.set_num_threads(1)
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader(source_images))
    adapter = holdfast.adapt(model, method, source=source, seed=seed)
    stream = parse(f"endless(samples={images},batch={batch})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a short one ends early
        flow = stream.over(glyphs.benchmark(), seed=seed)
    meter, begun = Meter(), time.monotonic()
    shown = correct = refused = collapsed = 0
    due = WARM_UP * images
    with progress(f"Endless, {method}", images) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # collapse is counted
        for part in flow:
            predicted = adapter(part.images).argmax(1)
            correct += int((predicted == part.labels).sum())
            refused += adapter.last.refused is not None
            collapsed += adapter.last.collapsed
            shown += len(part.images)
            advance(len(part.images))
            if shown >= due:
                meter.measure(shown, adapter)
                due = max(due + images / measurements, shown)
                if len(meter.images) % max(measurements // 10, 1) == 0:
                    print(
                        f"  {shown:>9,} images: {meter.resident[-1]:.1f} MB resident, "
                        f"{meter.objects[-1]:,} objects, {100 * correct / shown:.1f} % correct so "
                        f"far, {shown / (time.monotonic() - begun):.0f} images a second",
                        flush=True,
                    )
    counts = {
        "seed": seed,
        "method": method,
        "images": f"{shown:,}",
        "accuracy": f"{100 * correct / shown:.2f} %",
        "batches refused": refused,
        "batches with collapse": collapsed,
        **meter.summary(),
    }
    failures = meter.findings(most_mb)
    failures += [f"{refused} batches were refused"] if refused else []
    return Verdict("endless", counts, tuple(failures))
