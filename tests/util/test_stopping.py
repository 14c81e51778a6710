"""Ctrl-C waits for the batch at hand, and a second one does not."""

import signal
from threading import Thread

import pytest

from holdfast.util.stopping import stoppable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_once_it_is_noted_and_asked_again_it_stops(number):
    before = signal.getsignal(number)
    with stoppable() as stop:
        assert not stop.asked
        signal.raise_signal(number)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_other_threads_leave_signals_alone():
    found = []

    def work():
        with stoppable() as stop:
            found.append((stop.asked, signal.getsignal(signal.SIGINT)))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, signal.getsignal(signal.SIGINT))]
