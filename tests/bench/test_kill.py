"""A run's process is killed at random moments: the rows are those of a run never stopped."""

import json
import subprocess
import sys

import kill_runs
import pytest
from polars.testing import assert_frame_equal

from holdfast.bench.run import perform

KILLS = 20


def lasting(rows):
    return rows.select(name for name in rows.columns if "time" not in name and "memory" not in name)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cotta(views=8)", "rotta")]


@pytest.mark.parametrize("method", ["eata+debias", *SLOW])
def test_killed_at_twenty_random_moments(materials, tmp_path, method):
    run = kill_runs.plan(method)
    whole = perform(run, materials, tmp_path / "whole")
    pieces = tmp_path / "pieces"
    command = [kill_runs.__file__, materials.folder, pieces, method, KILLS]
    done = subprocess.run(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True, timeout=300
    )
    assert done.returncode == 0
    reached = json.loads(done.stdout)
    assert len(reached) == KILLS
    # It was not killed before it did anything, time after time.
    assert len({tuple(at) for at in reached if at[1]}) >= 5
    for place in sorted(pieces.iterdir()):
        folder = perform(run, materials, place, resume=True)
        assert_frame_equal(lasting(folder.rows), lasting(whole.rows), check_exact=True)
        assert sorted(p.name for p in folder.path.iterdir()) == ["manifest.json", "rows.parquet"]
