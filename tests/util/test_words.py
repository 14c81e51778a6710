"""Texts that people read."""

from holdfast.util.words import enumerated, first_line, listed, nearest


def test_a_near_word_is_named_and_a_far_one_is_not():
    assert nearest("Tnet", ("tent", "eata")) == " Did you mean 'tent'?"
    assert nearest("rotta", ("tent", "bn")) == ""


def test_long_lists_are_cut():
    assert listed(range(3)) == "0, 1, 2"
    assert listed("abcd", 2) == "a, b, …"


def test_a_list_in_a_sentence():
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b", "c"]) == "a, b and c"


def test_an_error_in_brackets_is_one_line_without_its_stop():
    assert first_line(ValueError("\nNo file.\nMore")) == "No file"
    assert first_line(KeyboardInterrupt()) == "KeyboardInterrupt"
