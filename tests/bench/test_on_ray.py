"""The same runs on a Ray cluster: the same rows, though a worker is killed midway."""

import importlib.util
import os
import signal
import sys
from types import SimpleNamespace

import pytest
from short_runs import BROKEN, long, plan, same_rows

from holdfast.bench.many import Progress, perform_all
from holdfast.bench.on_ray import _check_room, perform_on_ray

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed (extra [ray])"
)


@needs_ray
@pytest.mark.timeout(600)  # on a busy machine the cluster may have to be started again
def test_a_killed_worker_is_replaced_and_the_rows_are_those_of_one_process(tmp_path):
    import ray

    runs = [long(0), plan("tent", batch=4), BROKEN]
    killed, begun = [], []

    def tell(number, news):
        if number == 0 and isinstance(news, Progress):
            if killed and news.pid != killed[0]:
                begun.append(news.done)
            elif not killed and news.done >= 10:
                os.kill(news.pid, signal.SIGKILL)
                killed.append(news.pid)

    try:
        outcomes = perform_on_ray(runs, tmp_path / "ray", every=0.05, tell=tell, cores=2)
    except ValueError as error:
        if "timed out during startup" in str(error):
            pytest.skip("the machine is too busy for Ray, which allows itself 15 s to start")
        raise
    assert not ray.is_initialized()
    assert killed and begun[0] > 0  # it went on, and did not begin anew
    alone = perform_all(runs, tmp_path / "one")
    assert [one.run for one in outcomes] == runs
    for one, other in zip(outcomes[:2], alone[:2], strict=True):
        assert one.error is None
        assert one.folder.path.name == other.folder.path.name
        assert same_rows(one.folder, other.folder)
    assert outcomes[2].folder is None and outcomes[2].error == alone[2].error


def test_without_ray_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'holdfast\[ray\]'"):
        perform_on_ray([plan()], tmp_path)


def test_what_fits_no_machine_is_an_error_and_does_not_wait():
    nodes = [
        {"Alive": True, "Resources": {"CPU": 2.0}},
        {"Alive": True, "Resources": {}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 1.0}},
    ]
    cluster = SimpleNamespace(nodes=lambda: nodes)
    _check_room(cluster, [plan(threads=2)])
    with pytest.raises(ValueError, match=r"takes 3 threads.* more than 2 cores"):
        _check_room(cluster, [plan(), plan(threads=3)])
    with pytest.raises(ValueError, match=r"no machine of the cluster has a GPU"):
        _check_room(cluster, [plan(), plan(device="cuda:0")])
    nodes[1]["Resources"]["GPU"] = 1.0
    _check_room(cluster, [plan(), plan(device="cuda:0")])
