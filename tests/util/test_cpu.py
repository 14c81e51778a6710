"""What is set for a CPU, and what is left as the person has it."""

import json
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast.models import resnet20
from holdfast.util import cpu

VARIABLES = (*cpu.WAIT, *cpu.MEMORY)

SCRIPT = """
import json, os, sys
import holdfast
{before}
done = holdfast.tune_cpu()
from holdfast.util.cpu import untuned
print(json.dumps({{"wait": done.wait_policy, "memory": done.memory, "missing": done.missing,
    "omp": os.environ.get("OMP_WAIT_POLICY"), "torch": "torch" in sys.modules,
    "untuned": untuned(), "text": str(done)}}))
"""


def tune(before="", **environment):
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    script = SCRIPT.format(before=before)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


GLIBC = pytest.mark.skipif(not cpu._has_glibc(), reason="there is no glibc here")


@GLIBC
def test_both_are_set_before_torch_is_loaded_and_it_is_said():
    found = tune()
    assert found["omp"] == "passive" and not found["torch"]
    assert found["memory"] == "kept for the next step"
    assert (found["missing"], found["untuned"]) == ([], [])
    assert "sleep" in found["text"] and "kept" in found["text"]


def test_after_torch_was_loaded_threads_are_as_they_are_and_that_is_said():
    found = tune(before="import torch")
    assert found["omp"] is None
    assert "torch was imported before" in found["wait"]
    assert "before importing torch" in found["missing"][0]
    assert found["untuned"][0] == "idle threads spin"


@pytest.mark.parametrize("name", cpu.WAIT)
def test_what_the_person_has_set_for_threads_is_left_alone(name):
    found = tune(**{name: "active" if name == "OMP_WAIT_POLICY" else "7"})
    assert found["omp"] == ("active" if name == "OMP_WAIT_POLICY" else None)
    assert name in found["wait"]


@GLIBC
@pytest.mark.parametrize("name", cpu.MEMORY)
def test_what_the_person_has_set_for_memory_is_left_alone(name):
    value = "glibc.malloc.trim_threshold=131072" if name == "GLIBC_TUNABLES" else "131072"
    assert name in tune(**{name: value})["memory"]


@GLIBC
def test_freed_memory_is_really_kept():
    """Pages of a block that is freed and asked for again are not new."""
    code = """
import ctypes, resource, sys
from holdfast.util.cpu import tune_cpu
if sys.argv[1] == "tuned":
    tune_cpu()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def touch():
    block = libc.malloc(64 << 20)
    ctypes.memset(block, 1, 64 << 20)
    libc.free(block)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    faults = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", code, how], env=clean, capture_output=True, text=True
            ).stdout
        )
        for how in ("tuned", "plain")
    }
    assert faults["tuned"] * 20 < faults["plain"]


@pytest.mark.parametrize(("most", "said"), [(32 << 20, "kept"), (1 << 20, "mallopt refused")])
def test_a_glibc_that_takes_lower_thresholds_alone_gets_them(monkeypatch, most, said):
    class Libc:
        def mallopt(self, number, value):
            return int(number != cpu.M_MMAP_THRESHOLD or value <= most)

    monkeypatch.setattr(cpu.ctypes, "CDLL", lambda name: Libc())
    monkeypatch.setattr(cpu, "_has_glibc", lambda: True)
    monkeypatch.setattr(cpu, "_memory_is_kept", False)
    for name in cpu.MEMORY:
        monkeypatch.delenv(name, raising=False)
    assert said in holdfast.tune_cpu().memory


def test_without_glibc_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(cpu, "_has_glibc", lambda: False)
    for name in cpu.MEMORY:
        monkeypatch.delenv(name, raising=False)
    assert "no glibc" in holdfast.tune_cpu().memory


def test_the_command_line_does_it_by_itself():
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    code = "import os; from holdfast.cli.main import main; main(['--version']); "
    code += "from holdfast.util.cpu import untuned; print(os.environ['OMP_WAIT_POLICY'], untuned())"
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "passive []"


def test_doctor_says_when_it_is_missing(monkeypatch):
    def notes():
        return [one.text for one in holdfast.doctor(resnet20(), method="bn").findings]

    assert not any("CPU" in text for text in notes())
    for name in cpu.SLEEP:
        monkeypatch.delenv(name, raising=False)
    assert any("idle threads spin: call holdfast.tune_cpu()" in text for text in notes())
