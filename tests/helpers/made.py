"""Runs that were never run: rows with accuracies of one's choice, stored as real ones are."""

import json
from itertools import product
from statistics import fmean

import msgspec
import numpy as np

from holdfast.bench.manifest import Manifest
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import Seen
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.explain.card import card

DOMAINS = ("fog", "snow", "original")
# As somebody may name a method or a folder.
HOSTILE = "<script>alert('run')</script>"
HASHES = {"data": "d" * 64, "model": "m" * 64, "source": None}


def rows_of(
    seed,
    accuracy,
    *,
    classes=10,
    batches=4,
    size=20,
    time=0.05,
    slow=None,
    favourite=0.0,
    over=0.0,
    every=1,
    due=True,
    told=lambda number: {},
    visits=1,
    change=0.0,
):
    """`accuracy`: by domain, in %. `favourite`: how often a wrong guess is class 0. `over`: how
    much surer than right. `slow`: by domain, times as long as others. `every`: it takes a step in
    one batch of so many, if it takes any (`due`). `told`: what else is known of a batch. `visits`:
    how often all domains come; `change`: by how many points accuracy changes each time."""
    draws, number = np.random.default_rng(seed), 0
    for visit, domain in product(range(visits), accuracy):
        percent = accuracy[domain] + visit * change
        # So many right of a whole domain, exactly.
        right = np.arange(batches * size) < round(percent / 100 * batches * size)
        right = draws.permutation(right).reshape(batches, size)
        for hits in right:
            labels = draws.integers(classes, size=size)
            wrong = (labels + draws.integers(1, classes, size=size)) % classes
            wrong = np.where((draws.random(size) < favourite) & (labels != 0), 0, wrong)
            confidence = np.clip(percent / 100 + over + draws.normal(0, 0.15, size), 0.11, 1)
            yield Seen(
                batch=number,
                visit=visit,
                domains=(domain,) * size,
                labels=labels.astype(np.int32),
                predicted=np.where(hits, labels, wrong).astype(np.int32),
                confidence=confidence.astype(np.float32),
                entropy=(2.3 * (1 - confidence)).astype(np.float32),
                losses={"entropy": 1.0},
                images={"entropy": size},
                reliable=size // 2,
                due=due,
                stepped=number % every == 0,
                forwards=1,
                backwards=1,
                time=time * (slow or {}).get(domain, 1) * (1 + 0.1 * float(draws.random())),
                memory=300.0,
                **told(number),
            )
            number += 1


def manifest_of(run, *, images, batches, classes=10, started=0, hashes=HASHES, **others):
    told = {
        "fingerprint": run.fingerprint(hashes),
        "title": run.title,
        "run": run.flat,
        "method": str(run.composition),
        "settings": {
            part.name: {
                setting.name: {"value": setting.value, "from": setting.origin}
                for setting in part.settings
            }
            for part in card(run.method, run.preset).parts
        },
        "uncorrected": not all(method.keeps_probabilities() for method in run.composition.methods),
        "stream": str(run.resolved_stream),
        "order": list(run.resolved_stream.domains()),
        "batches": batches,
        "images": images,
        "classes": classes,
        "hashes": hashes,
        "versions": {"holdfast": "0.1.0"},
        "machine": {"processor": "none"},
        "command": f"holdfast run --method '{run.method}'",
        "time_started": f"2026-01-01T00:{started:02d}:00+00:00",
    }
    return msgspec.convert(told | others, Manifest)


def retell(folder, **others):
    """Say otherwise in a run's manifest, as another program may."""
    path = folder.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **others}))


def analysis_rows(accuracy):
    return [
        {
            "domain": domain,
            "visit": 0,
            "gap": 10 - percent / 20,
            "intra": 2.0,
            "inter": 4.0,
            "ratio": 0.5,
            "similarity_source": 0.9,
            "similarity_target": 0.8,
            "classes": 10,
            "source_classes": 10,
            "images": 80,
        }
        for domain, percent in accuracy.items()
    ]


def make_without_rows(path, run, accuracy, *, images, hashes=HASHES, steps=None):
    """A finished run of which the manifest alone is left; `images`: of each domain; `steps`: how
    many were taken, and how many could have been."""
    corrupted = [value for name, value in accuracy.items() if name != "original"]
    metrics = {
        "mean_accuracy": fmean(accuracy.values()),
        "mean_accuracy_corrupted": fmean(corrupted),
        "batches": 1,
        **{f"accuracy/{name}": value for name, value in accuracy.items()},
    }
    if steps is not None:
        taken, due = steps
        metrics |= {"steps": taken, "steps_due": due, "step_rate": taken / due}
    folder = RunFolder(path)
    folder.path.mkdir(parents=True)
    folder.manifest = manifest_of(
        run,
        images=images * len(accuracy),
        batches=1,
        classes=100,
        hashes=hashes,
        figures=metrics,
        finished=True,
    )
    return folder


def make_run(
    out,
    method="eata",
    accuracy=60.0,
    *,
    seed=0,
    cut=None,
    analysis=False,
    started=0,
    manifest=None,
    batches=4,
    size=20,
    classes=10,
    rows=None,
    **of_run,
):
    """A run's folder. `accuracy`: in %, of all domains or by domain; `cut`: after so many batches
    it goes on still; `manifest`: what its manifest says otherwise; `rows`: for `rows_of`."""
    by_domain = accuracy if isinstance(accuracy, dict) else dict.fromkeys(DOMAINS, accuracy)
    given = {"data": "glyphs-c", "stream": "continual(order='fog,snow')", **of_run}
    run = Run.of(method, seed=seed, analysis=analysis, **given)
    told = {"due": run.composition.host.learns, **(rows or {})}
    every = list(rows_of(seed, by_domain, batches=batches, size=size, classes=classes, **told))
    count = len(every)
    told = manifest_of(run, images=count * size, batches=count, classes=classes, started=started)
    fingerprint = (manifest or {}).get("fingerprint", told.fingerprint)
    folder = RunFolder(run.folder(out, fingerprint))
    folder.path.mkdir(parents=True)
    folder.manifest = told
    recorder = Recorder(classes)
    for seen in every:
        recorder.update(seen)
    lines = [shown.row() for shown in every]
    if cut is not None:
        folder.write(lines[: cut // 2])
        folder.write(lines[cut // 2 : cut])
    else:
        geometry = analysis_rows(by_domain) if analysis else None
        folder.finish(lines, recorder.summary(), geometry)
        retell(folder, time_finished="")
    retell(folder, **(manifest or {}))
    return folder
