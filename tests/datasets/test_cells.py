"""Cells as sources write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.datasets.cells import (
    flag_of, integer_of, is_blank, number_of, parse_cell, text_of,
)


@pytest.mark.parametrize(("text", "word", "qualifiers", "options"), [
    ("selective", "selective", (), ()),
    ("1 (dist-opt)", "1", ("dist-opt",), ()),
    ("1f1b (DeepSpeed pipe)", "1f1b", ("deepspeed pipe",), ()),
    ("full(block,21 layers)", "full", ("block", "21 layers"), ()),
    ("full(num_layers=5)", "full", (), (("num_layers", "5"),)),
    ("selective(modules=layernorm,moe_act)", "selective", (),
     (("modules", "layernorm,moe_act"),)),
    ("fp8(linear, float8 all-gather)", "fp8", ("linear", "float8 all-gather"), ()),
    ("fp8-mx(or h100 subchannel)", "fp8-mx", ("or h100 subchannel",), ()),
])
def test_a_cell_is_a_word_and_qualifiers(text, word, qualifiers, options):
    cell = parse_cell(text)
    assert (cell.word, cell.qualifiers, cell.options) == (word, qualifiers, options)


@pytest.mark.parametrize("value", [None, float("nan"), "", "  ", "nan", "N/A", "unknown", "-"])
def test_blank(value):
    assert is_blank(value)
    assert text_of(value) == ""


def test_none_is_a_statement():
    assert not is_blank("none")
    assert flag_of("none") is False


@pytest.mark.parametrize(("value", "said"), [
    ("yes (cuDNN/TE)", True), ("1", True), (1.0, True), (True, True), ("no/local", False),
    ("0", False), (0, False), ("no (fused softmax)", False), ("SDPA", None), ("", None)])
def test_flag_is_the_first_word(value, said):
    assert flag_of(value) is said


@pytest.mark.parametrize(("value", "number"), [
    ("8", 8.0), ("4 (per GPU)", 4.0), ("1e3", 1000.0), (2.5, 2.5), ("x", None), (None, None),
    (float("nan"), None)])
def test_number_is_the_leading_one(value, number):
    assert number_of(value) == number


def test_infinity_is_no_integer():
    assert integer_of(float("inf")) is None
    assert integer_of("9" * 400) is None


@given(st.text(max_size=60))
def test_any_text_is_taken_apart(text):
    cell = parse_cell(text)
    assert cell.word == cell.word.strip()
    assert isinstance(flag_of(text), bool | None)
    integer_of(text)
