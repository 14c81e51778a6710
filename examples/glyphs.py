"""A character classifier meets noise, blur, snow … and clear weather again.

The embedded benchmark glyphs-c: images are drawn by code, and a small network trained on them is
in the package. Each method sees the same stream once, fifteen corruptions at severity 5 and clean
images last, with no labels and no reset, and is scored on the predictions it gave on the way.
"""

import time

import torch
import tyro
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import holdfast
from holdfast.data import glyphs
from holdfast.data.streams import parse

# With 50 classes, the cosine of a sure prediction to an even mean is 1/√50 = 0.14: EATA's default
# redundancy, 0.05, is meant for a thousand classes and would leave nearly all images out.
METHODS = ("frozen", "bn", "tent", "eata(redundancy=0.3)", "debias", "eata(redundancy=0.3)+debias")


def main(limit: int = 1000, seed: int = 0, methods: tuple[str, ...] = METHODS) -> None:
    """Stream glyphs-c through some methods.

    limit: images of each domain.
    """
    model = glyphs.model()
    source = holdfast.Source.from_loader(model, glyphs.source_loader())
    flow = parse(f"continual(limit={limit})").over(glyphs.benchmark(), seed=seed)
    # Drawn once, for all methods.
    batches = list(track(flow.batches(), "Drawing images", total=len(flow), transient=True))
    rows = {}
    for method in methods:
        adapter = holdfast.adapt(model, method, source=source, seed=seed)
        right: dict[str, list[bool]] = {}
        confidence = 0.0
        start = time.perf_counter()
        for batch in track(batches, method, transient=True):
            sure, predicted = adapter(batch.images).softmax(1).max(1)
            confidence += float(sure.sum())
            for domain, hit in zip(batch.domains, predicted == batch.labels, strict=True):
                right.setdefault(domain, []).append(bool(hit))
        spent = 1000 * (time.perf_counter() - start) / len(batches)
        scores = {domain: 100 * sum(hits) / len(hits) for domain, hits in right.items()}
        rows[method] = (scores, 100 * confidence / flow.samples, spent)
    show(rows, limit, seed)


def show(rows: dict[str, tuple[dict[str, float], float, float]], limit: int, seed: int) -> None:
    table = Table(box=box.SIMPLE, title=f"glyphs-c, accuracy in %, {limit} images a domain")
    table.add_column("domain")
    for method in rows:
        table.add_column(method, justify="right")
    domains = next(iter(rows.values()))[0]
    for domain in domains:
        table.add_row(domain, *(f"{scores[domain]:.1f}" for scores, _, _ in rows.values()))
    table.add_section()
    means = [sum(scores.values()) / len(scores) for scores, _, _ in rows.values()]
    table.add_row("mean of 16", *(f"{mean:.1f}" for mean in means), style="bold")
    table.add_row("mean confidence", *(f"{sure:.1f}" for _, sure, _ in rows.values()))
    table.add_row("ms a batch", *(f"{spent:.0f}" for _, _, spent in rows.values()))
    Console(width=None if Console().is_terminal else 140).print(table)
    print(f"One seed ({seed}); differences of less than a point mean little.")


if __name__ == "__main__":
    torch.manual_seed(0)
    tyro.cli(main)
