"""The recurring stream on the embedded network: every domain comes again and again."""

from __future__ import annotations

import warnings

import torch

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse
from holdfast.util.progress import progress
from holdfast.util.terminal import columns, show
from soak.memory import Meter
from soak.verdict import Verdict

METHODS = ("frozen", "bn", "tent", "eata+debias", "eata+debias+steady", "rotta", "t3a")


def recurring(
    visits: int = 20,
    limit: int = 200,
    seed: int = 0,
    methods: tuple[str, ...] = METHODS,
    most_mb: float = 20.0,
    source_images: int = 2_000,
) -> Verdict:
    """All domains again and again; shows accuracy by visit, and nothing may grow.

    visits: how often each domain comes. limit: images of each domain at each visit.
    most_mb: by how much resident memory may grow from the first visit's end to the last's.
    source_images: what the source is made of.
    """
    torch.set_num_threads(1)
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader(source_images))
    stream = parse(f"recurring(visits={visits},limit={limit})")
    failures: list[str] = []
    counts: dict[str, object] = {"seed": seed, "visits": visits, "methods": len(methods)}
    accuracies: dict[str, list[float]] = {}
    shown = 0
    for method in methods:
        adapter = holdfast.adapt(model, method, source=source, seed=seed)
        meter, right, images_of = Meter(), [0] * visits, [0] * visits
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flow = stream.over(glyphs.benchmark(), seed=seed)
            with progress(f"Recurring, {method}", flow.samples) as advance:
                visit, refused = 0, 0
                for batch in flow:
                    if batch.visit > visit:
                        visit = batch.visit
                        meter.measure(sum(images_of), adapter)
                    predicted = adapter(batch.images).argmax(1)
                    right[visit] += int((predicted == batch.labels).sum())
                    images_of[visit] += len(batch.images)
                    refused += adapter.last.refused is not None
                    advance(len(batch.images))
                meter.measure(sum(images_of), adapter)
        shown += sum(images_of)
        accuracies[method] = [100 * r / s for r, s in zip(right, images_of, strict=True)]
        findings = meter.findings(most_mb) + (
            [f"{refused} batches were refused"] if refused else []
        )
        failures += [f"{method}: {finding}" for finding in findings]
        summary = ", ".join(f"{name} {value}" for name, value in meter.summary().items())
        print(f"  {method}: {summary}", flush=True)
    table = columns("visit", *accuracies)
    for visit, row in enumerate(zip(*accuracies.values(), strict=True), 1):
        table.add_row(str(visit), *(f"{value:.1f}" for value in row))
    show(table)
    ends = {m: f"{by_visit[0]:.1f} to {by_visit[-1]:.1f} %" for m, by_visit in accuracies.items()}
    return Verdict("recurring", {**counts, "images": f"{shown:,}", **ends}, tuple(failures))
