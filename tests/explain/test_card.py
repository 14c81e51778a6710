"""Cards say what a composition really is, and what a stream."""

import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
from toy_methods import TOYS
from toys import toy_net

import holdfast
from holdfast.data.streams import kinds
from holdfast.data.streams.papers import PAPERS
from holdfast.explain.card import card, methods_table
from holdfast.explain.stream_card import find_card, streams_table
from holdfast.util.terminal import as_text


def settings_of(part):
    return {one.name: one for one in part.settings}


def test_sentence_and_equation_come_from_the_docstring():
    host, plugin = card("tent+debias").parts
    assert host.sentence == "Minimises the mean entropy of its predictions over the whole batch."
    assert host.equation == "L = mean of H, H = −Σ p log p"
    assert (host.role, plugin.role) == ("host", "plug-in")
    assert host.paper == holdfast.Tent.paper
    assert plugin.paper == holdfast.Debias.paper
    assert card("frozen").parts[0].equation == ""
    assert card("rdumb").parts[0].note == holdfast.Rdumb.note != ""


def test_a_default_by_the_number_of_classes_is_a_rule_until_they_are_known():
    def redundancy(*arguments):
        (part,) = card(*arguments).parts
        return settings_of(part)["redundancy"]

    assert redundancy("eta").value == "0.05·√(1000/C), at most 0.9"
    assert redundancy("eta", None, 10).value == 0.5
    assert (redundancy("eta").origin, redundancy("eta", None, 10).origin) == ("default",) * 2
    assert (redundancy("eta", "imagenet-c").value, redundancy("eta(redundancy=1)").value) == (
        0.05,
        1,
    )


def test_facts_are_those_of_the_whole_composition():
    both = card("eata+debias")
    assert both.name == "eata+debias"
    assert both.needs == ("fisher", "prototypes")
    assert (both.forwards, both.backwards) == ("1", "0 to 1")
    extra = card("eata+consistency")
    assert (extra.forwards, extra.backwards) == ("2", "1")
    assert card("eata(fisher_weight=0)").needs == ()
    assert card("bn").predicts == holdfast.Bn.predicts
    assert (card("bn").backwards, card("bn").trains) == ("0", "nothing")


def test_bounds_that_hold_for_batches_of_some_size_say_so():
    assert "1 to 3, of batches of up to 64 images" in as_text(card("rotta"))
    assert "batches of up to" not in as_text(card("cotta"))


def test_what_trains_follows_what_is_written():
    assert "norm layers" in card("tent").trains
    assert "norm layers" in card("tent(select=norm,lr=1)").trains
    assert card("tent(select=all)").trains == "all"
    assert card("tent(select=body)+debias").trains == "all but the head"


def test_each_value_says_where_it_comes_from():
    (alone,) = card("debias(filter=false)", "cifar100-c").parts
    found = settings_of(alone)
    assert (found["filter"].value, found["filter"].origin) == (False, "written")
    assert (found["lambda_src"].value, found["lambda_src"].origin) == (20.0, "alone")
    assert (found["src_reduction"].value, found["src_reduction"].origin) == ("mean", "preset")
    assert (found["alpha"].value, found["alpha"].origin) == (0.996, "default")
    assert "its own host" in alone.role


def test_what_is_written_wins_over_alone_and_preset():
    (part,) = card("debias(lambda_src=20,src_reduction=mean)", "cifar100-c").parts
    assert settings_of(part)["lambda_src"].origin == "written"
    assert settings_of(part)["src_reduction"].origin == "written"


def test_on_a_host_a_plugin_is_not_alone_and_leaves_the_host_its_settings():
    host, plugin = card("tent+debias").parts
    found = settings_of(plugin)
    assert (found["lambda_src"].value, found["lambda_src"].origin) == (50.0, "default")
    assert "lr" in settings_of(host) and "lr" not in found


@pytest.mark.parametrize("preset", [None, "cifar100-c", "imagenet-c"])
@pytest.mark.parametrize("name", [n for n, one in holdfast.methods().items() if not one.needs_host])
def test_a_card_shows_every_resolved_value_and_what_it_takes(name, preset):
    spec = holdfast.methods()[name].example()
    made = card(spec, preset, classes=10)
    resolved = holdfast.compose(spec, preset=preset).for_classes(10).methods[-1]
    unset = {one.name: "unset" for one in resolved.settings() if one.name not in resolved.given}
    assert {one.name: one.value for one in made.parts[-1].settings} == {**resolved.given, **unset}
    text = str(made)
    for one in resolved.settings():
        assert one.meaning in text and one.admits() in text
    assert made.parts[-1].sentence in text and made.parts[-1].equation in text
    assert resolved.paper in text and resolved.note in text
    assert made.predicts in text


def test_text_is_plain_and_whole():
    lines = str(card("eata+debias", "cifar100-c")).splitlines()
    assert "preset             cifar100-c" in lines
    assert "needs              fisher and prototypes of the source" in lines
    assert "backwards a batch  0 to 1" in lines
    row = next(line for line in lines if line.startswith("src_reduction"))
    assert row.split()[1:3] == ["mean", "preset"]
    assert "nothing of the source" in str(card("tent"))
    assert next(x for x in lines if x.startswith("nesterov")).split()[1] == "false"


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="Did you mean 'debias'"):
        card("eata+debais")
    with pytest.raises(ValueError, match="There is no preset"):
        card("eata", "cifar")


def test_the_table_has_a_row_for_each_method():
    head, *rows = as_text(methods_table()).splitlines()
    assert head.split()[:4] == ["method", "kind", "trains", "needs"]
    by_name = {row.split()[0]: row for row in rows}
    assert by_name.keys() == holdfast.methods().keys()
    assert by_name["debias"].split()[1] == "plug-in," and by_name["eata"].split()[1] == "host"
    assert "prototypes" in by_name["debias"] and "0 to 1" in by_name["debias"]
    assert by_name["tent"].endswith(card("tent").parts[0].sentence)
    hosts = [name for name in by_name if holdfast.methods()[name].standalone]
    plugins = [name for name in by_name if name not in hosts]
    assert list(by_name) == sorted(hosts) + sorted(plugins)


@pytest.mark.usefixtures("toy_methods")
def test_of_a_plugin_that_needs_a_host_the_table_has_what_it_adds():
    @holdfast.register("toy-guest")
    @dataclass(frozen=True)
    class Guest(TOYS["toy-centre"]):
        """Is no method by itself."""

        needs_host: ClassVar[bool] = True

        def extra_forwards(self):
            return 2

    assert (Guest.kind(), TOYS["toy-centre"].kind()) == ("plug-in", "plug-in, or alone")
    (row,) = (x for x in as_text(methods_table()).splitlines() if x.startswith("toy-guest"))
    cells = [
        "toy-guest",
        "plug-in",
        "as its host",
        "nothing",
        "+2",
        "+0",
        "Is no method by itself.",
    ]
    assert re.split(r"\s{2,}", row) == cells
    assert holdfast.doctor(toy_net()).methods["toy-guest"].fits
    with pytest.raises(ValueError, match=r"write it behind a method, as in tent\+toy-guest"):
        card("toy-guest")


@pytest.mark.parametrize("name", kinds())
def test_a_stream_s_card_shows_every_setting_and_where_it_comes_from(name):
    lines = str(find_card(name)).splitlines()
    rows = {line.split()[0]: line for line in lines if line}
    for one in kinds()[name].settings():
        row = rows[one.name]
        assert row.split()[1:3] == [str(one.default).lower(), "default"]
        assert one.meaning in row and one.admits() in row
        assert one.source and row.endswith(one.source)
        # Each source is this library's own, or a paper that the card names in full.
        named = [paper for paper in PAPERS if re.search(rf"\b{paper}", one.source)]
        assert named or "holdfast" in one.source
        assert all(PAPERS[paper] in rows[paper.split()[0]] for paper in named)
    after = [paper for paper in kinds()[name].after.split(", ") if paper != "holdfast"]
    assert all(PAPERS[paper] in "\n".join(lines) for paper in after)
    assert rows["domains"].split(None, 1)[1].split(", ") == list(kinds()[name]().domains())


def test_a_stream_s_card_tells_what_was_written():
    lines = str(find_card("correlated(gamma=0.5, order='fog,snow')")).splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["gamma"][1:3] == ["0.5", "written"] and rows["slots"][1:3] == ["0", "default"]
    assert rows["domains"] == ["domains", "fog,", "snow"]


def test_the_table_has_a_row_for_each_kind_of_stream():
    head, *rows = as_text(streams_table()).splitlines()
    assert head.split()[:2] == ["stream", "after"]
    by_name = {row.split()[0]: row for row in rows}
    assert by_name.keys() == kinds().keys()
    assert "gamma=0.1, sampler=rotta, slots=0" in by_name["correlated"]
    assert "batch=1" in by_name["single"] and "SAR" in by_name["single"]
    assert by_name["continual"].rstrip().endswith("clean images last.")


def test_one_name_is_one_card():
    assert not kinds().keys() & holdfast.methods().keys()
    assert find_card("eata+debias", "cifar100-c") == card("eata+debias", "cifar100-c")
    for wrong, right in (("corelated", "correlated"), ("tnet", "tent"), ("labelshfit(", "label")):
        with pytest.raises(ValueError, match=f"no method or stream '{wrong[:4]}.*mean '{right}"):
            find_card(wrong)
    with pytest.raises(ValueError, match=r"Methods: .*bn, .*Streams: continual, correlated"):
        find_card("xyz")
    with pytest.raises(ValueError, match="Did you mean 'gamma'"):
        find_card("correlated(gama=1)")
    with pytest.raises(ValueError, match="is a stream, and presets are of methods"):
        find_card("mixed", "cifar100-c")
    with pytest.raises(ValueError, match="Did you mean 'debias'"):
        find_card("eata+debais")


def test_a_card_says_how_streams_of_a_fleet_are_served():
    assert card("tent+debias").in_a_fleet.startswith("one grouped step")
    assert card("tent+debias(balance=auto)").in_a_fleet == "one after the other"
    assert card("cotta").in_a_fleet == "one after the other"
    # Rounding decides when it stops, so that streams at once would not answer as each alone.
    assert card("lame").in_a_fleet == "one after the other"
