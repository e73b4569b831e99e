"""Memory, kernels and collectives against what the reference tables measured."""

from __future__ import annotations

import pandas as pd
import pytest

from predictor.training.evaluate import evaluate


def test_memory_is_compared_by_kind_and_rank():
    row = {"id": "m", "framework": "Megatron-LM", "gpu": "A100-SXM4-80GB", "num_gpus": 8,
           "gpus_per_node": 8, "model": "gpt", "layers": 24, "hidden": 2048, "heads": 16,
           "vocab": 51200, "seq": 2048, "mbs": 1, "gbs": 8, "tp": 1, "pp": 2, "dp": 4,
           "precision": "bf16", "measured_peak": 40.0, "unit": "GiB"}
    kinds = [("allocated", "peak"), ("allocated", "last"), ("reserved", ""), ("device", ""),
             ("guess", "")]
    table = pd.DataFrame([{**row, "id": f"m{at}", "mem_kind": kind, "which_rank": rank}
                          for at, (kind, rank) in enumerate(kinds)])
    found = evaluate(table, quantity="peak_memory")
    predicted = found.per_row["predicted"].tolist()
    assert set(found.by_group) >= {"allocated", "allocated, last rank", "reserved", "device"}
    assert predicted[1] < predicted[0] < predicted[2] < predicted[3]  # the first stage holds most
    assert found.per_row["measured"][0] == 40 * 2**30
    assert found.refused_by_kind == {"memory-kind mem_kind": 1}


@pytest.mark.parametrize(("quantity", "path", "rows"), [
    ("peak_memory", "memory/measured_memory.csv", None),
    ("kernel_time", "kernels/kernels_long.parquet", 5000),
    ("collective_time", "collectives/collectives.parquet", 5000),
])
def test_every_quantity_scores_its_table(reference, quantity, path, rows):
    file = reference / path
    table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    if rows:
        table = table.sample(rows, random_state=0)
    found = evaluate(table, quantity=quantity)
    assert found.rows == len(table) == found.predicted + len(found.refused)
    assert found.errors.rows > 50
    assert found.errors.median_ape < 60
