from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import COLUMNS, NUMBERS, empty, normalise, stack, validate
from predictor.spec.errors import InputError

ROW = {"source": "s", "licence": "MIT", "file": "f.csv", "timing_kind": "kernel",
       "gpu": "a100-sxm-80gb", "op": "gemm", "pass": "fwd", "dtype": "bf16", "latency_s": 1e-3}


def table(**changes: Any) -> pd.DataFrame:
    return normalise(pd.DataFrame([ROW | changes]))


def test_absent_columns_become_blanks_of_the_right_type() -> None:
    found = table(m="12", n="wide", version=None)
    assert tuple(found.columns) == COLUMNS
    assert found.at[0, "m"] == 12.0 and found["n"].isna().all()
    assert found.at[0, "version"] == found.at[0, "flag"] == ""
    assert {str(found[name].dtype) for name in NUMBERS} == {"float64"}


def test_the_index_of_the_source_is_forgotten() -> None:
    frame = pd.DataFrame([ROW | {"m": 1.0}, ROW | {"m": 2.0}], index=[7, 3])
    assert normalise(frame)["m"].to_dict() == {0: 1.0, 1: 2.0}


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(InputError, match="latency_us"):
        table(latency_us=4.0)


def test_tables_stack_and_none_is_empty() -> None:
    assert len(stack([table(), empty(), table()])) == 2
    assert tuple(stack([]).columns) == COLUMNS and len(stack([])) == 0


def test_a_correct_table_passes() -> None:
    pytest.importorskip("pandera")
    frame = table()
    assert validate(frame).equals(frame)
    assert len(validate(empty())) == 0


@pytest.mark.parametrize("changes", [
    {"op": "conv"}, {"timing_kind": "guess"}, {"pass": "both"}, {"dtype": "int3"},
    {"causal": "yes"}, {"licence": ""}, {"gpu": ""}, {"latency_s": 0.0}, {"latency_s": None},
    {"latency_s": float("inf")}, {"m": -1.0},
])
def test_each_rule_of_the_schema_holds(changes: dict[str, Any]) -> None:
    pytest.importorskip("pandera")
    (column,) = changes
    with pytest.raises(InputError) as caught:
        validate(table(**changes))
    assert [problem.where for problem in caught.value.problems] == [column]


def test_all_problems_are_told_at_once() -> None:
    pytest.importorskip("pandera")
    with pytest.raises(InputError) as caught:
        validate(table(op="conv", licence="").assign(extra=1))
    told = str(caught.value)
    assert "conv" in told and "licence" in told and "extra" in told
