"""The benchmark: runs, their figures and their store, the paper's experiments, sweeps."""
