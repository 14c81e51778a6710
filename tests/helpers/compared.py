"""Runs that were made, as they are compared."""

from made import make_run

from holdfast.results.comparison import compare
from holdfast.results.gather import gather


def comparison_of(path):
    """The only one of the runs below a folder."""
    (comparison,) = compare(gather(path).runs)
    return comparison


def make_seeds(path, method, accuracies, time=0.05, **others):
    """A run for each accuracy, each with a seed of its own."""
    for seed, accuracy in enumerate(accuracies):
        make_run(path, method, accuracy, seed=seed, rows={"time": time}, **others)
