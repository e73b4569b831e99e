"""Tables of one kind are not taken for another."""

from __future__ import annotations

import pytest

from predictor.datasets.collectives import read_collectives
from predictor.datasets.kernels import read_kernels
from predictor.datasets.memory import read_memory
from predictor.datasets.steps import read_steps
from predictor.spec.errors import InputError


@pytest.mark.parametrize(("read", "missing"), [
    (read_steps, "seq_len"), (read_memory, "measured_peak"), (read_kernels, "latency_us"),
    (read_collectives, "time_us")])
def test_a_table_of_another_kind_is_refused_by_its_columns(read, missing, tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("gpu;num_gpus\nH100;8\n")
    with pytest.raises(InputError, match=missing) as caught:
        read(table)
    assert "commas" in caught.value.problems[0].remedy
