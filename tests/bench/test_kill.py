"""A run's process is killed at random moments: the rows are those of a run never stopped."""

import multiprocessing
import os
import random
import signal

import pytest
from polars.testing import assert_frame_equal

from holdfast.bench.plan import Run
from holdfast.bench.run import perform

KILLS = 20
STREAM = "continual(order='fog,contrast,original',clean=false)"


def lasting(rows):
    return rows.select(name for name in rows.columns if "time" not in name and "memory" not in name)


@pytest.mark.parametrize(
    ("method", "longest"), [("eata+debias", 0.5), ("cotta(views=8)", 1.5), ("rotta", 0.5)]
)
def test_killed_at_twenty_random_moments(materials, tmp_path, method, longest):
    run = Run(method, stream=STREAM, limit=160, batch=16)
    whole = perform(run, materials, tmp_path / "whole")
    fork = multiprocessing.get_context("fork")
    generator = random.Random(1)
    kills, finished = 0, []
    while kills < KILLS:
        out = tmp_path / f"pieces{len(finished)}"
        child = fork.Process(
            target=perform, args=(run, materials, out), kwargs={"resume": True, "every": 0.05}
        )
        child.start()
        child.join(generator.uniform(0.02, longest))
        if child.exitcode is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.join(30)
        assert child.exitcode in (0, -signal.SIGKILL)
        if child.exitcode == 0:
            finished.append(out)
    begun = sorted(path for path in tmp_path.glob("pieces*") if any(path.iterdir()))
    assert begun
    for out in begun:
        folder = perform(run, materials, out, resume=True)
        assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)
        assert sorted(p.name for p in folder.path.iterdir()) == ["manifest.json", "rows.parquet"]
