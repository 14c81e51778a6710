"""Which runs stand side by side, under which names."""

import hashlib

import pytest
from made import HASHES, make_run

from holdfast.bench.sweep import CHOSEN
from holdfast.paper.comparable import published_rows
from holdfast.report.page import Report, page
from holdfast.report.texts import markdown
from holdfast.results.comparison import compare
from holdfast.results.gather import gather


def compared(path):
    return compare(gather(path).runs)


def one(path):
    (comparison,) = compared(path)
    return comparison


def test_seeds_are_one_entry_with_mean_and_spread(tmp_path):
    for seed, accuracy in enumerate((50, 60, 70)):
        make_run(tmp_path, accuracy=accuracy, seed=seed)
    (group,) = one(tmp_path).groups
    assert group.label == "eata" and len(group.runs) == 3
    assert group.mean("mean_accuracy") == pytest.approx(60)
    assert group.number("mean_accuracy").std == pytest.approx(10)


def test_an_analysis_is_no_other_method(tmp_path):
    make_run(tmp_path, seed=0)
    make_run(tmp_path, seed=0, analysis=True)
    (group,) = one(tmp_path).groups
    (stored,) = group.runs
    assert stored.analysis is not None


def test_batch_sizes_are_compared_and_named(tmp_path):
    make_run(tmp_path, batch=20)
    make_run(tmp_path, batch=40)
    labels = {group.label for group in one(tmp_path).groups}
    assert labels == {"eata · batch 20", "eata · batch 40"}


def test_other_images_are_another_comparison(tmp_path):
    make_run(tmp_path, severity=5)
    make_run(tmp_path, severity=3)
    make_run(tmp_path, "tent", severity=3)
    first, second = compared(tmp_path)
    assert (len(first.groups), len(second.groups)) == (2, 1)
    assert "severity 3" in first.title and "severity 5" in second.title


def test_a_random_order_is_one_more_seed(tmp_path):
    for number in range(2):
        stream = f"continual(order=random,order_seed={number})"
        make_run(tmp_path, stream=stream, accuracy=50 + 20 * number)
    (group,) = one(tmp_path).groups
    assert group.mean("mean_accuracy") == pytest.approx(60)


def test_what_nothing_tells_apart_still_has_names_of_its_own(tmp_path):
    make_run(tmp_path, manifest={"method": "eata, in some way"})
    make_run(tmp_path, seed=1, manifest={"method": "eata, in another", "fingerprint": "f" * 64})
    labels = [group.label for group in one(tmp_path).groups]
    assert len(set(labels)) == 2 and all(label.startswith("eata · ") for label in labels)


def test_a_plug_ins_host_has_its_settings_in_any_order(tmp_path):
    make_run(tmp_path, "eata(lr=0.1)")
    make_run(tmp_path, "eata(redundancy=0.3,lr=0.2)")
    make_run(tmp_path, "eata(lr=0.2,redundancy=0.3)+debias(alpha=0.9)")
    comparison = one(tmp_path)
    hosts = {group.label: comparison.host_of(group) for group in comparison.groups}
    found = hosts.pop("eata(lr=0.2,redundancy=0.3)+debias(alpha=0.9)")
    assert found is not None and found.label == "eata(redundancy=0.3,lr=0.2)"
    assert set(hosts.values()) == {None}


def test_a_host_under_other_conditions_is_none_where_there_are_several(tmp_path):
    make_run(tmp_path, "eata", batch=20)
    make_run(tmp_path, "eata", batch=40)
    make_run(tmp_path, "eata+debias", batch=40)
    comparison = one(tmp_path)
    (plugged,) = (group for group in comparison.groups if "+" in group.label)
    host = comparison.host_of(plugged)
    assert host is not None and host.label == "eata · batch 40"


def coded(code=None, **files):
    """What a manifest says of the code; older ones say nothing."""
    made = {} if code is None else {"code": code * 64}
    hashes = {**HASHES, **made, **files}
    fingerprint = hashlib.sha256(str(hashes).encode()).hexdigest()
    return {"hashes": hashes, "fingerprint": fingerprint}


def test_what_different_code_made_is_no_second_seed_and_is_told(tmp_path):
    make_run(tmp_path, seed=0, manifest=coded("a"))
    make_run(tmp_path, seed=1, manifest=coded("b"))
    make_run(tmp_path, seed=2, manifest=coded())
    comparison = one(tmp_path)
    labels = {group.label for group in comparison.groups}
    assert labels == {"eata · code aaaaaaaa", "eata · code bbbbbbbb", "eata · code unknown"}
    assert "3 versions of the code made, one of them unknown, are compared" in comparison.caveat
    assert comparison.caveat in published_rows(comparison).note
    shown = page(Report(gather(tmp_path), published_rows))
    assert shown.count("versions of the code") >= 2 and "a" * 64 in shown
    assert comparison.caveat in markdown(Report(gather(tmp_path), published_rows))


@pytest.mark.parametrize("code", ["a", None])
def test_of_one_code_nothing_is_told(tmp_path, code):
    for seed in range(2):
        make_run(tmp_path, seed=seed, manifest=coded(code) | {"fingerprint": str(seed)})
    comparison = one(tmp_path)
    assert len(comparison.groups) == 1 and comparison.caveat == ""


def test_a_plug_in_is_compared_with_the_host_of_its_own_code_and_file(tmp_path):
    for number, (code, file) in enumerate((("a", "1"), ("b", "1"), ("a", "2"))):
        own = coded(code, **{"method eata": file * 64})
        make_run(tmp_path, "eata", 50 + number, manifest=own)
    own = coded("a", **{"method eata": "2" * 64, "method debias": "3" * 64})
    make_run(tmp_path, "eata+debias", manifest=own)
    comparison = one(tmp_path)
    (plugged,) = (group for group in comparison.groups if "+" in group.label)
    host = comparison.host_of(plugged)
    assert host is not None and host.mean("mean_accuracy") == pytest.approx(52, abs=1)
    assert host.label == "eata · code aaaaaaaa · method eata 22222222"


def test_a_run_chosen_with_labels_says_so(tmp_path):
    make_run(tmp_path, tags=("sweep", CHOSEN))
    make_run(tmp_path, "tent")
    assert {group.label: group.chosen for group in one(tmp_path).groups} == {
        "eata": True,
        "tent": False,
    }
