"""Text in, records or every problem out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.spec.errors import InputError
from predictor.spec.model import ModelConfig
from predictor.spec.parse import load_yaml, parse_json, parse_mapping
from predictor.spec.strategy import Strategy

TINY = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}


def _problems(record, mapping) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        parse_mapping(record, mapping)
    return [(problem.rule, problem.where) for problem in caught.value.problems]


def test_a_mapping_becomes_a_record():
    model = parse_mapping(ModelConfig, TINY)
    assert (model.num_layers, model.ffn_hidden_size, model.head_dim) == (2, 256, 16)


def test_lists_become_tuples():
    strategy = parse_mapping(Strategy, {"pp": 2, "pipeline_layout": [3, 5]})
    assert strategy.pipeline_layout == (3, 5)


def test_unknown_key_is_refused():
    assert _problems(Strategy, {"tensor_parallel": 2}) == [("unknown-key", "tensor_parallel")]


def test_text_is_no_number():
    assert _problems(Strategy, {"tp": "8"}) == [("wrong-type", "tp")]


def test_a_number_is_no_switch():
    assert _problems(Strategy, {"sequence_parallel": 1}) == [("wrong-type", "sequence_parallel")]


def test_unknown_word_is_refused():
    assert _problems(Strategy, {"precision": "fp7"}) == [("wrong-type", "precision")]


def test_missing_keys_are_all_named():
    assert _problems(ModelConfig, {"num_layers": 2}) == [
        ("missing-key", "hidden_size"), ("missing-key", "num_attention_heads"),
        ("missing-key", "vocab_size")]


def test_wrong_type_and_unknown_key_come_together():
    assert set(_problems(Strategy, {"tp": 1.5, "tq": 2})) == {
        ("wrong-type", "tp"), ("unknown-key", "tq")}


def test_path_of_a_nested_problem():
    assert _problems(Strategy, {"layer_overrides": [{"num_layers": 1}, {"num_layers": None}]}) == [
        ("wrong-type", "layer_overrides.1.num_layers")]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_finite_numbers_are_refused(value):
    assert _problems(Strategy, {"activation_offload": value}) == [("plain-json", "")]


def test_json_text_that_is_broken_is_refused():
    with pytest.raises(InputError):
        parse_json(Strategy, '{"tp": ')


def test_yaml_error_names_the_line():
    with pytest.raises(InputError, match="line 2, column 4"):
        load_yaml("a: 1\nb: ]\n")


def test_yaml_builds_no_objects():
    with pytest.raises(InputError, match="yaml"):
        load_yaml("!!python/object/apply:os.getcwd []")


def test_a_key_that_comes_twice_is_refused():
    with pytest.raises(InputError, match=r"'tp' comes twice.*line 3"):
        load_yaml("tp: 1\npp: 1\ntp: 2\n")


def test_aliases_are_refused():
    """Nine lines of nested aliases would describe a thousand million items."""
    with pytest.raises(InputError, match="aliases"):
        load_yaml("a: &a [x, x]\nb: [*a, *a]\n")


@pytest.mark.parametrize(("text", "value"), [
    ("1e9", 1e9), ("1.4E-6", 1.4e-6), ("-2e+3", -2000.0), ("12", 12), ("1e3x", "1e3x"),
    ("h100", "h100"), ("true", True), ("~", None)])
def test_numbers_read_as_people_write_them(text, value):
    assert load_yaml(f"a: {text}") == {"a": value}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner,
                                                                max_size=3), max_leaves=8)


@given(st.dictionaries(st.sampled_from([*TINY, "tp", "x"]), plain, max_size=6))
def test_anything_gives_a_record_or_an_input_error(mapping):
    for record in (ModelConfig, Strategy):
        try:
            parse_mapping(record, mapping)
        except InputError as error:
            assert error.problems
            json.dumps([problem.message for problem in error.problems])
