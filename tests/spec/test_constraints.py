"""The language that selects rows and strategies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.spec.constraints import DEEPEST, parse_constraint
from predictor.spec.errors import InputError

ROWS = {
    "tier": np.array(["A", "B", "C", None], dtype=object),
    "workload": ["pretrain", "pretrain(mock data)", "lora", "sft-full"],
    "tp": [1, 2, 8, 16],
    "pp": np.array([4.0, np.nan, 2.0, 4.0]),
    "model": ["llama 3", "GPT-3", "", "7"],
}


@pytest.mark.parametrize(("text", "expected"), [
    ("tier in {A,B}", [1, 1, 0, 0]),
    ("tier in {A, B} and workload == pretrain*", [1, 1, 0, 0]),
    ("workload == pretrain", [1, 0, 0, 0]),
    ("workload != pretrain*", [0, 0, 1, 1]),
    ("workload in {pretrain*, lora}", [1, 1, 1, 0]),
    ("tier not in {A}", [0, 1, 1, 1]),
    ("tp <= 8", [1, 1, 1, 0]),
    ("tp<2 or tp>8", [1, 0, 0, 1]),
    ("tp >= 2 and not (tp > 8)", [0, 1, 1, 0]),
    ("tp == 2.0", [0, 1, 0, 0]),
    ("8 <= tp", [0, 0, 1, 1]),
    ("tp * pp <= 16", [1, 0, 1, 0]),
    ("tp* pp<=16", [1, 0, 1, 0]),
    ("tp*pp == 64", [0, 0, 0, 1]),
    ("tp < pp", [1, 0, 0, 0]),
    ("model == 'llama 3'", [1, 0, 0, 0]),
    ('model == "gpt-3"', [0, 1, 0, 0]),
    ("model == ''", [0, 0, 1, 0]),
    ("model == 7", [0, 0, 0, 1]),
    ("tier == A or tier == B and tp == 1", [1, 0, 0, 0]),
    ("(tier == A or tier == B) and tp == 1", [1, 0, 0, 0]),
    ("NOT tier == A", [0, 1, 1, 1]),
])
def test_selects_rows(text, expected):
    assert parse_constraint(text).matches(ROWS).tolist() == [bool(one) for one in expected]


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_a_blank_satisfies_no_order(sign):
    assert not parse_constraint(f"pp {sign} 3").matches(ROWS)[1]


def test_one_strategy_is_a_single_mapping():
    assert parse_constraint("tp * cp <= 16").holds({"tp": 8, "cp": 2})
    assert not parse_constraint("zero_stage == 3").holds({"zero_stage": 1})


def test_no_rows_match_nothing():
    assert parse_constraint("tp in {1,2} and pp < 3").matches({"tp": [], "pp": []}).shape == (0,)


def test_names_its_columns():
    assert parse_constraint("tp * pp < 4 or tier == A").columns == {"tp", "pp", "tier"}


@pytest.mark.parametrize(("text", "position"), [
    ("", 1), ("tier", 5), ("tier in A", 9), ("tier in {A", 11), ("tier = A", 6), ("tp <= ", 6),
    ("(tp < 3", 8), ("tp < 3)", 7), ("tp < 3 tp", 8), ("tp == and", 7), ("tp & pp", 4),
    ("== 3", 1), ("tp < 'x'", 6),
])
def test_an_error_says_where(text, position):
    with pytest.raises(InputError, match=f"at character {position}:"):
        parse_constraint(text)


def test_a_number_that_must_be_one():
    with pytest.raises(InputError, match="product"):
        parse_constraint("tp * pp == many").matches(ROWS)


def test_an_unknown_column_is_named_with_a_near_one():
    with pytest.raises(InputError, match=r"'teir'.*tier"):
        parse_constraint("teir == A").matches(ROWS)


def test_depth_and_length_are_bounded():
    for text in ("(" * (DEEPEST + 1) + "tp < 1", "not " * 400 + "tp < 1", "tp < 1 or " * 300):
        with pytest.raises(InputError):
            parse_constraint(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        found = parse_constraint(text)
    except InputError:
        return
    assert found.text == text


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 9))
def test_order_and_its_negation_share_the_rows_out(values, bound):
    rows = {"tp": values}
    below = parse_constraint(f"tp < {bound}").matches(rows)
    above = parse_constraint(f"not tp < {bound}").matches(rows)
    assert (below != above).all()
    assert below.tolist() == [value < bound for value in values]
