"""Finished runs that were never run, with accuracies of one's choice."""

from statistics import fmean

from holdfast.bench.store import RunFolder, write_json

HASHES = {"data": "d", "model": "m", "source": None}


def fake(path, run, accuracy, *, images, hashes=HASHES, steps=None):
    """`accuracy`: by domain, in the order in which they came. `steps`: how many were taken, and how
    many could have been."""
    path.mkdir(parents=True)
    corrupted = [value for name, value in accuracy.items() if name != "original"]
    figures = {
        "mean_accuracy": fmean(accuracy.values()),
        "mean_accuracy_corrupted": fmean(corrupted),
        **{f"accuracy/{name}": value for name, value in accuracy.items()},
    }
    if steps is not None:
        taken, due = steps
        figures |= {"steps": taken, "steps_due": due, "step_rate": taken / due}
    manifest = {
        "run": run.flat,
        "title": run.title,
        "method": str(run.composition),
        "stream": str(run.resolved_stream),
        "order": list(run.resolved_stream.domains()),
        "images": images * len(accuracy),
        "classes": 100,
        "hashes": hashes,
        "machine": {"processor": "none"},
        "figures": figures,
        "finished": True,
    }
    write_json(path / "manifest.json", manifest)
    return RunFolder(path)
