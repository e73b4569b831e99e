"""Every family is measured, and says what it did."""

import pytest

from predictor.datasets import kernel_schema
from predictor.profiling.measure import Place, measure
from predictor.profiling.operators.registry import operator_of, problems_of, registry
from predictor.profiling.point import Kind, Point, UnsupportedError
from predictor.spec.errors import InputError

PLACE = Place("cpu", "cpu-core", most_s=0.02)
SIDES = {"batch": 2, "seq": 16, "seq_kv": 16, "heads": 4, "kv_heads": 2, "head_dim": 8, "m": 32,
         "n": 16, "k": 24}


def _point(family, dtype="fp32", **cells):
    columns = registry()[family].columns
    return Point(Kind.KERNEL, {"family": family, "dtype": dtype,
                               **{name: SIDES[name] for name in columns}, **cells})


@pytest.mark.parametrize("family", sorted(registry()))
def test_a_family_gives_a_row_for_each_pass(family):
    rows = measure(_point(family), PLACE)
    ways = [row["pass"] for row in rows]
    assert len(ways) == len(set(ways)) > 0
    for row in rows:
        assert row["table"] == "kernels"
        assert 0 < row["ci_low_s"] <= row["latency_s"] <= row["ci_high_s"] or row["n_samples"] < 7
        assert row["op"] == registry()[family].op
        assert row["timing_kind"] == "host"
        assert row["n_samples"] >= 7


@pytest.mark.parametrize("family", sorted(registry()))
def test_the_words_of_a_family_are_those_of_the_tidy_table(family):
    operator = registry()[family]
    assert operator.op in kernel_schema.OPERATIONS
    assert set(operator.columns) <= set(kernel_schema.COLUMNS)


def test_a_linear_layer_has_three_products_of_equal_work():
    rows = measure(_point("linear"), PLACE)
    assert {row["pass"]: row["flops"] for row in rows} == dict.fromkeys(
        ("fwd", "dgrad", "wgrad"), 2.0 * 32 * 16 * 24)


def test_causal_attention_counts_the_half_that_it_computes():
    """16 x 17 / 2 scores of 8 long products, twice, 4 heads, batch 2; backward five products."""
    fwd, bwd = measure(_point("attention", causal=True), PLACE)
    assert fwd["flops"] == 2 * 2 * 136 * 8 * 4 * 2
    assert bwd["flops"] == fwd["flops"] * 2.5
    assert fwd["causal"] == "1"


def test_what_a_device_cannot_run_is_said():
    with pytest.raises(UnsupportedError, match="tf32"):
        measure(_point("linear", "tf32"), PLACE)


def test_an_unknown_family_names_its_neighbour():
    with pytest.raises(InputError, match="did you mean rmsnorm"):
        operator_of("rmsnrom")


def test_all_problems_of_a_point_are_found_at_once():
    found = problems_of({"family": "linear", "dtype": "int3", "m": 0, "n": 2.5, "q": 1})
    assert sorted(problem.where for problem in found) == ["dtype", "k", "m", "n", "q"]


def test_a_point_is_known_by_what_it_measures():
    assert _point("softmax").key == _point("softmax").key
    assert _point("softmax", m=33).key != _point("softmax").key
