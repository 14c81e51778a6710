"""Progress is for people at a terminal, and never in the way."""

import sys

from holdfast.util.progress import progress


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
