"""Progress is never in the way; Ctrl-C waits for the batch at hand, and a second one does not."""

import signal
import sys
from threading import Thread

import pytest

from holdfast.util.progress import progress, stoppable


def test_nothing_is_printed_where_nobody_watches(capsys):
    with progress("Images", 10) as advance:
        advance(4)
        advance(6)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_what_and_how_far(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Images", 10) as advance:
        advance(10)
    shown = capsys.readouterr().err
    assert "Images" in shown and "10/10" in shown


def test_it_is_silent_without_rich(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Images", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


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
