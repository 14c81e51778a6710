"""A retry gets the answer it was given, for as long as that is remembered."""

import json

import torch

from holdfast.serving.remembered import recall, remember


def test_answers_survive_being_written_and_the_oldest_go_first():
    notes = {}
    answers = {name: torch.randn(count, 5) for name, count in (("a", 2), ("b", 3), ("c", 1))}
    for name, logits in answers.items():
        remember(notes, name, logits, images=4)
    read = json.loads(json.dumps(notes))
    assert recall(read, "a") is None
    for name in ("b", "c"):
        torch.testing.assert_close(recall(read, name), answers[name], rtol=0, atol=0)
    assert recall(read, None) is None and recall({}, "a") is None


def test_an_answer_that_is_larger_than_the_room_is_still_remembered():
    notes = {}
    remember(notes, "a", torch.ones(1, 3), images=2)
    remember(notes, "b", torch.ones(9, 3), images=2)
    assert recall(notes, "a") is None
    assert recall(notes, "b").shape == (9, 3)
