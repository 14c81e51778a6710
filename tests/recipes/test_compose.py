import re
from dataclasses import dataclass, replace
from typing import ClassVar, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import holdfast
from holdfast import Consistency, Debias, Eata, Method, Rdumb, Roid, Tent, compose
from holdfast.recipes.compose import parse

VALUES = {
    float: st.floats(0, 0.9, allow_subnormal=False) | st.floats(1e-30, 1e-5),
    int: st.integers(1, 10**9),
    bool: st.booleans(),
    str: st.sampled_from(["layer4", "blocks.9|blocks.10", "none", "a b"]),
}


@st.composite
def typed_values(draw):
    method = draw(st.sampled_from(list(holdfast.methods().values())))
    given = {}
    for one in method.settings():
        values = st.sampled_from(one.choices) if one.choices else VALUES[one.kind]
        value = draw(st.none() | values)
        if value is not None and not (one.kind is float and value < (one.at_least or 0)):
            given[one.name] = value
    return method(**given)


@given(typed_values())
def test_a_value_reads_back_from_its_string(value):
    assert parse(str(value)) == (value,)


@given(typed_values(), st.sampled_from([None, "cifar100-c", "imagenet-c"]))
def test_a_resolved_composition_reads_back_and_is_complete(value, preset):
    assume(value.conflict() is None)
    host = ["tent"] if value.needs_host else []
    resolved = compose(*host, value, preset=preset).for_classes(10)
    found = resolved.methods[-1]
    assert compose(str(resolved)) == resolved
    for one in value.settings():  # unset is what may be, or would contradict what was given
        if one.name not in found.given:
            assert one.default is None or replace(value, **{one.name: one.default}).conflict()
    assert value.given.items() <= found.given.items()


@pytest.mark.parametrize("preset", [None, "cifar100-c", "imagenet-c"])
@pytest.mark.parametrize("name", holdfast.methods())
def test_what_is_resolved_has_the_type_that_its_annotation_says(name, preset):
    method = holdfast.methods()[name]
    resolved = compose(method.example(), preset=preset).for_classes(10).methods[-1]
    hints = get_type_hints(method)
    for setting in method.settings():
        value, hint = getattr(resolved, setting.name), hints[setting.name]
        admitted = get_args(hint) if get_origin(hint) else (hint,)
        assert value in admitted or type(value) in admitted


@given(st.text(max_size=30))
def test_any_text_is_a_method_or_a_clear_error(text):
    try:
        assert parse(text)
    except ValueError as error:
        message = str(error)
        assert message.endswith(".")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("eata", Eata()),
        ("eata()", Eata()),
        (" eata ( lr = 1e-3 , redundancy=.1 ) ", Eata(lr=1e-3, redundancy=0.1)),
        ("EATA(fisher_samples=5e2)", Eata(fisher_samples=500)),
        ("debias(labels=soft)", Debias(labels="soft")),
        ("debias(labels='soft')", Debias(labels="soft")),
        ('debias(labels="Soft")', Debias(labels="soft")),
        ("debias(normalize=FALSE,filter=True)", Debias(normalize=False, filter=True)),
        ("tent(lr=None)", Tent()),
        ("consistency(augment=None)", Consistency(augment="none")),
        ("tent(lr=1e+2)", Tent(lr=100.0)),
        ("rdumb(reset_every=7)", Rdumb(reset_every=7)),
        ("roid(correct=TRUE)", Roid(correct="logits")),
        ("roid(correct=false)", Roid(correct="none")),
        ("roid(correct=None)", Roid(correct="none")),
        ("roid(correct=Probabilities)", Roid(correct="probabilities")),
    ],
)
def test_grammar(text, value):
    assert parse(text) == (value,)


def test_composition_by_string_and_by_values_is_the_same():
    by_string = compose("eata(lr=0.001)+debias(alpha=0.99)")
    assert by_string == compose(Eata(lr=1e-3), Debias(alpha=0.99))
    assert by_string == compose("eata(lr=0.001)", Debias(alpha=0.99))
    assert by_string.names == "eata+debias"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("etaa", r"no method 'etaa'\. Did you mean '\w+'\? Methods: .*bn, .*tent"),
        ("eata(learning_rate=1)", r"eata has no setting 'learning_rate'.*Its settings: lr, .*"),
        ("eata(redundncy=1)", r"Did you mean 'redundancy'"),
        ("eata(lr=fast)", r"lr takes a number at least 0, not 'fast'"),
        ("eata(lr=-1)", r"at least 0, not -1"),
        ("eata(lr=nan)", r"not nan"),
        ("eata(lr=true)", r"not True"),
        ("eata(fisher_samples=2.5)", r"a whole number at least 1, not 2.5"),
        ("debias(alpha=1.5)", r"at least 0 and at most 1"),
        ("debias(labels=medium)", r"labels takes 'hard' or 'soft', not 'medium'"),
        ("debias(filter=1)", r"filter takes true or false"),
        ("eata(lr=1,lr=2)", "lr is given twice"),
        ("eata(lr=1", r"character 10: expected ',' or '\)', found the end"),
        ("eata)", r"found '\)'"),
        ("eata++debias", "a method's name"),
        ("eata(lr)", "name=value"),
        ("", "a method's name"),
        ("eata(lr=__import__('os'))", "Cannot read|takes a number"),
    ],
)
def test_errors_say_what_is_valid(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tent+eata", "eata is a host, not a plug-in"),
        ("debias+eata", r"write eata\+debias"),
        ("frozen+debias", r"frozen never takes a step.*debias alone"),
        ("bn+consistency", "bn never takes a step"),
        ("tent+debias+debias", r"debias appears twice.*leave one out"),
        ("tent+debias(lr=1)", r"lr is the host's to set: write tent\(lr=…\)\+debias"),
    ],
)
def test_company(text, message):
    with pytest.raises(ValueError, match=message):
        compose(text)


@dataclass(frozen=True)
class First(Method):
    """A plug-in that others may not precede."""

    name: ClassVar[str] = "first"
    plugin: ClassVar[bool] = True
    needs_steps: ClassVar[bool] = False

    def objection_after(self, before):
        others = "+".join(method.name for method in before)
        return f"first comes before {others}: write first+{others}." if before else None


def test_a_plugin_may_object_to_those_written_before_it():
    compose("tent", First(), "debias", "steady")
    for before in ("debias", "debias+steady"):
        with pytest.raises(ValueError, match=re.escape(f"write first+{before}.")):
            compose(f"tent+{before}", First())


def test_typed_values_are_checked_too():
    with pytest.raises(ValueError, match="at least 0"):
        Eata(lr=-1.0)
    with pytest.raises(ValueError, match="or a typed value"):
        compose(3)


def test_presets():
    with pytest.raises(ValueError, match=r"no preset 'cifar-100'.*cifar100-c, imagenet-c"):
        compose("tent", preset="cifar-100")
    assert compose("tent", preset="cifar100-c").host.lr == 1e-4
    assert (
        compose("eata", preset="imagenet-c").host.given.items()
        >= {
            "lr": 2.5e-4,
            "redundancy": 0.05,
            "fisher_weight": 2000.0,
            "fisher_samples": 2000,
            "entropy_factor": 0.4,
        }.items()
    )


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb"])
def test_redundancy_follows_the_number_of_classes_unless_it_is_given(name):
    unset = compose(f"{name}(lr=0.1)+debias")
    assert unset.host.redundancy is None
    for classes, value in ((1000, 0.05), (100, 0.158), (10, 0.5), (2, 0.9)):
        found = unset.for_classes(classes)
        assert found.host.redundancy == pytest.approx(value, rel=2e-3)
        assert compose(str(found)) == found
        assert (found.host.lr, found.plugins) == (0.1, unset.plugins)
        assert found.advice(classes) == []
    for written in (compose(f"{name}(redundancy=0.2)"), compose(name, preset="cifar100-c")):
        assert written.for_classes(10) == written
        assert written.host.redundancy == (0.2 if written.contexts[0].preset is None else 0.05)
        assert "drops most images of 10 classes" in written.advice(10)[0]
        assert "0.5 suits them" in written.advice(10)[0]


def test_what_is_written_out_wins():
    written = compose("debias(src_reduction=sum,lambda_src=3)", preset="cifar100-c").host
    assert (written.src_reduction, written.lambda_src) == ("sum", 3)
    # Written out, even the default wins over what holds for debias alone.
    assert compose("debias(lambda_src=50)").host.lambda_src == 50


def test_needs_follow_from_the_settings():
    assert compose("eata+debias").needs == ("fisher", "prototypes")
    assert compose("eata(fisher_weight=0)+debias(lambda_src=0)").needs == ()
    assert compose("tent+debias").needs == ("prototypes",)


def test_methods_lists_names_and_traits():
    found = holdfast.methods()
    assert {"frozen", "bn", "tent", "eata", "eta", "rdumb", "debias", "consistency"} <= set(found)
    assert found["debias"].plugin and not found["eata"].plugin
    assert all(method.paper and method.__doc__ for method in found.values())


def test_numbers_of_numpy_are_numbers():
    assert Tent(lr=np.float32(0.5)) == Tent(lr=0.5)
    assert Rdumb(reset_every=np.int64(7)) == Rdumb(reset_every=7)


def test_a_setting_of_a_base_keeps_its_meaning_and_bounds_under_another_default():
    lr, base = (
        next(one for one in method.settings() if one.name == "lr")
        for method in (holdfast.Tent, holdfast.Eata)
    )
    assert (lr.default, base.default) == (1e-4, 2.5e-4)
    assert (lr.meaning, lr.at_least) == (base.meaning, base.at_least) == ("learning rate", 0)
    with pytest.raises(ValueError, match="tent: lr takes a number at least 0, not -1"):
        holdfast.Tent(lr=-1)


def test_an_error_shows_no_more_of_a_text_than_can_be_read():
    with pytest.raises(ValueError, match="Cannot read the method") as caught:
        holdfast.compose("(" * 5_000)
    assert len(str(caught.value)) < 700


def test_true_and_false_mean_words_where_a_setting_says_so():
    assert (Roid(correct=True), Roid(correct=False)) == (
        Roid(correct="logits"),
        Roid(correct="none"),
    )
    with pytest.raises(ValueError, match=r"correct takes 'logits' or .*; true is 'logits', false"):
        Roid(correct="both")
    with pytest.raises(ValueError, match="labels takes 'hard' or 'soft', not True"):
        Debias(labels=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ensemble", r"ensemble has nothing to act on alone.*as in tent\+ensemble"),
        ("prior", r"prior has nothing to act on alone.*as in tent\+prior"),
        ("ensemble+prior", r"ensemble has nothing to act on alone"),
        ("prior+debias", r"prior has nothing to act on alone"),
        ("bn+ensemble", r"bn never takes a step.*: put it on a method that learns"),
        ("roid+ensemble", r"set its source_momentum, or write roid\(source_momentum=1\)\+ensemble"),
        ("roid+prior", r"set its correct, or write roid\(correct=false\)\+prior"),
        ("cmf+ensemble", r"set its model_momentum, or write cmf\(model_momentum=1\)\+ensemble"),
        ("cmf(correct=probabilities)+prior", r"write cmf\(correct=false\)\+prior"),
    ],
)
def test_parts_that_need_a_host_and_those_that_a_host_has(text, message):
    with pytest.raises(ValueError, match=message):
        compose(text)


def test_what_a_host_has_may_be_left_out_and_added():
    for text in (
        "roid(source_momentum=1)+ensemble",
        "roid(correct=false)+prior",
        "cmf(model_momentum=1,correct=false)+prior+ensemble",
        "frozen+prior",
        "debias+ensemble",
    ):
        compose(text)
