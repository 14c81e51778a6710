"""Record accuracy, calibration and bias in a loop of your own. Run it: python examples/own_loop.py

Any loop will do: what a recorder takes is logits and labels, and what `adapter.last` tells. Its
memory does not grow, so the loop may go on for ever.
"""

import tyro

import holdfast
from holdfast.bench import Recorder
from holdfast.data import glyphs
from holdfast.data.streams import parse


def main(method: str = "tent", limit: int = 256) -> None:
    """limit: images of each domain."""
    adapter = holdfast.adapt(glyphs.model(), method)
    recorder = Recorder(classes=len(glyphs.CLASSES))
    for batch in parse(f"continual(limit={limit})").over(glyphs.benchmark(), seed=0):
        logits = adapter(batch.images)
        recorder.record(logits, batch.labels, batch.domains, last=adapter.last)

    for name, domain in recorder.domains.items():
        print(f"{name:18} {domain.accuracy:5.1f} %   ECE {100 * domain.ece():4.1f} %")
    total = recorder.total
    print(f"mean of {len(recorder.domains)} domains: {recorder.mean_accuracy:.1f} %")
    print(f"expected calibration error: {100 * total.ece():.1f} %")
    print(f"bias: {100 * total.bias:.1f} % of predictions would have to fall on other classes")
    print(f"surer than 0.95: {100 * total.share_above:.1f} % of predictions")
    print("collapsed:", "never" if recorder.collapse is None else f"at batch {recorder.collapse}")


if __name__ == "__main__":
    tyro.cli(main)
