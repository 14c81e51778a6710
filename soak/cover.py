"""The fuzzer's inputs, led by what code they reach: python -m soak.cover --door "method spec"

libFuzzer by way of atheris, which `make soak-cover` installs; hypothesis reads its bytes as inputs.
"""

import itertools
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import atheris
import torch
import tyro

with atheris.instrument_imports(include=["holdfast"]):
    from soak.fuzz import DOORS, Tally, fuzz_test

from soak.verdict import Verdict

# What libFuzzer begins with. Of fewer bytes hypothesis can make no edit of a file, and by itself
# libFuzzer begins with one.
CORPUS, LENGTH = 40, 4096


def main(door: str = "method spec", inputs: int = 10_000, seed: int = 0) -> None:
    """door: where inputs are tried. inputs: how many libFuzzer makes; those that hypothesis can
    read are tried."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tally, folder = Tally(door), tempfile.TemporaryDirectory()
    test = fuzz_test(DOORS[door](Path(folder.name)), tally, inputs, seed, lambda tried: None)

    made = itertools.count(1)

    def attempt(contents: bytes) -> None:
        test.hypothesis.fuzz_one_input(contents)
        if next(made) < inputs:
            return
        counts = {"seed": seed, "door": door, "inputs": f"{inputs:,}", "tried": f"{tally.tried:,}"}
        failures = [" with ".join(fault) for fault in tally.faults.values()]
        failures += [] if tally.tried else ["none could be read as an input: give more"]
        verdict = Verdict("cover", counts, tuple(failures))
        print("\n".join([*verdict.failures, str(verdict)]), flush=True)
        folder.cleanup()
        os._exit(not verdict.passed)  # libFuzzer would end the process itself, and say nothing

    # Seed 0 would be one that it draws. It makes an input or two beyond what it counts.
    corpus = Path(folder.name) / "corpus"
    corpus.mkdir()
    for number in range(CORPUS):
        (corpus / str(number)).write_bytes(random.Random(seed + number).randbytes(LENGTH))
    options = [f"-runs={2 * inputs}", f"-seed={seed + 1}", f"-max_len={LENGTH}"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    tyro.cli(main)
