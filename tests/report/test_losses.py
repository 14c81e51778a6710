"""Where adapting is worse than not adapting, in words."""

import pytest
from compared import comparison_of
from made import make_run

from holdfast.report.finding import headline


def lost(path):
    """The sentences on it."""
    return [one for one in headline(comparison_of(path)) if "accurate than" in one and "not" in one]


def test_domains_in_which_every_method_loses_are_named(tmp_path):
    for seed in range(2):
        make_run(tmp_path, "frozen", {"fog": 20, "snow": 50, "original": 95}, seed=seed)
        make_run(tmp_path, "bn", {"fog": 60, "snow": 55, "original": 90 - 2.5 * seed}, seed=seed)
        make_run(tmp_path, "eata", {"fog": 70, "snow": 40, "original": 90}, seed=seed)
    every, some = lost(tmp_path)
    assert every == (
        "On clean images (original) adapting is worse than not adapting: every method is less "
        "accurate than frozen there, by 5.0 ± 0.0 to 6.2 ± 1.8 points."
    )
    assert some == (
        "Also less accurate than frozen, which does not adapt: eata on snow (by 10.0 ± 0.0 points)."
    )


def test_many_domains_are_counted_and_the_worst_methods_come_first(tmp_path):
    domains = [f"domain_{number}" for number in range(6)]
    make_run(tmp_path, "frozen", dict.fromkeys(domains, 50))
    make_run(tmp_path, "bn", dict.fromkeys(domains, 60))
    for place, method in enumerate(("tent", "eata", "sar", "rdumb")):
        accuracy = dict.fromkeys(domains, 60) | dict.fromkeys(domains[: place + 1], 45 - 5 * place)
        make_run(tmp_path, method, accuracy)
    (said,) = lost(tmp_path)
    assert said == (
        "Less accurate than frozen, which does not adapt: rdumb on 4 of 6 domains (by up to 20.0 "
        "points), sar on domain_0, domain_1 and domain_2 (by up to 15.0 points), eata on domain_0 "
        "and domain_1 (by up to 10.0 points), and 1 more method."
    )


@pytest.mark.parametrize("accuracies", [(40, 56), (50.25, 50.25)])
def test_a_loss_that_seeds_do_not_show_or_that_is_small_is_none(tmp_path, accuracies):
    """In one domain: −10.5 and +5.5 points, or −0.25 with each seed."""
    for seed, accuracy in enumerate(accuracies):
        given = {"seed": seed, "size": 100}
        make_run(tmp_path, "frozen", {"fog": 50.5, "snow": 50}, **given)
        make_run(tmp_path, "bn", {"fog": accuracy, "snow": 90}, **given)
        make_run(tmp_path, "tent", {"fog": accuracy, "snow": 90}, **given)
    assert lost(tmp_path) == []


def test_without_the_frozen_model_bn_is_what_methods_are_held_against(tmp_path):
    make_run(tmp_path, "bn", {"fog": 60, "snow": 60})
    make_run(tmp_path, "tent", {"fog": 50, "snow": 80})
    make_run(tmp_path, "eata", {"fog": 55, "snow": 80})
    assert lost(tmp_path) == [
        "On fog learning is worse than not learning: every method is less accurate than bn there, "
        "by 5.0 to 10.0 points."
    ]
