"""Runs of a few images, and what ends them early."""

from holdfast.bench.plan import Run

STREAM = 'continual(order="fog,snow",clean=false)'


def plan(method="bn", **others):
    """Two domains of a few images: 8 batches. Health, for which every process would draw images,
    is left out."""
    usual = {"stream": STREAM, "limit": 32, "batch": 8, "health": False}
    return Run.of(method, **{**usual, **others})


def long(seed=0, limit=200):
    """Long enough to be met on its way."""
    return plan("tent(lr=0.01)", limit=limit, batch=4, seed=seed)


BROKEN = plan(data="nowhere", model="glyphs")


def lasting(rows):
    """What does not differ from run to run."""
    return rows.select(name for name in rows.columns if "time" not in name and "memory" not in name)


def same_rows(first, second):
    first, second = lasting(first.rows), lasting(second.rows)
    return len(first) > 0 and first.equals(second)


class Killed(BaseException):
    """As sudden as SIGKILL: nothing of the run's own code may catch it and tidy up."""


class Killer:
    """Ends the process's work on a run after so many batches."""

    def __init__(self, after):
        self.left = after

    def __call__(self, progress):
        if self.left < 0:
            raise Killed
        self.left -= 1  # from the start of the run on
