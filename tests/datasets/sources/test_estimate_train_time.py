from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import validate
from predictor.datasets.kernels import measurements
from predictor.datasets.physical import reasons
from predictor.datasets.sources import kernels_long
from predictor.datasets.sources.estimate_train_time import SOURCE, read, vocabulary_rows
from predictor.spec.errors import InputError

FILES = {
    "linear1": "mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,2048.0,122.0,245.0\n",
    "linear2": "mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,2048.0,50.0,101.0\n",
    "linear4": "mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,2048.0,90.0,181.0\n",
    "linear_final": "mp,b,l,dim,F_dur(us),B_dur(us)\n4.0,2.0,1024.0,2048.0,90.0,181.0\n",
    "flash_atten": "mp,b,h,l,dim,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1536.0,2048.0,222.0,740.0\n",
    "baddbmm": "mp,b,h,l,dim,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1024.0,2048.0,266.0,525.0\n",
    "bmm": "mp,b,h,l,dim,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1024.0,2048.0,269.0,536.0\n",
    "softmax": "mp,b,h,l,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1024.0,300.0,500.0\n",
    "ScaledUpperTriangMaskedSoftmax": "mp,b,h,l,F_dur(us),B_dur(us)\n1,2.0,2.0,1024.0,16.0,13.0\n",
    "fillmask": "mp,b,h,l,dim,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1024.0,2048.0,323.0,1277.0\n",
    "gelu": "mp,b,l,dim,F_dur(us),B_dur(us)\n4.0,2.0,1024.0,2560.0,17.0,24.0\n",
    "layernorm": "b,l,dim,F_dur(us),B_dur(us)\n2.0,1024.0,2048.0,20.0,40.0\n",
    "res_add": "b,l,dim,F_dur(us),B_dur(us)\n2.0,1024.0,2048.0,42.0,42.0\n",
    "RoPE": "mp,b,h,l,dim,F_dur(us),B_dur(us)\n2.0,4.0,16.0,1024.0,2048.0,250.0,500.0\n",
    "embedding": "mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,2048.0,67.0,246.0\n",
    "parallel_cross_entropy_128": "mp,b,l,F_dur(us),B_dur(us)\n4.0,2.0,1792.0,939.0,315.0\n",
    "optimizer": "num_layers,hidden_size,param_tensors,params,dur\n2.0,256.0,28.0,3e7,9731.0\n",
    "middleStage_optimizer": "mp,dim,encoders,dur(us)\n2.0,1024.0,3.0,1690.0\n",
    "lastStage_optimizer": "mp,dim,encoders,dur(us)\n2.0,1024.0,3.0,1690.0\n",
}
GPU = "NVIDIAA100-SXM4-80GB"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    operators = tmp_path / "Perlmutter" / "operator"
    operators.mkdir(parents=True)
    for name, text in FILES.items():
        (operators / f"{GPU}_{name}_fp16.csv").write_text(text)
    (operators / f"{GPU}.csv").write_text("GPU,Function\nx,baddbmm\n")
    return tmp_path


@pytest.fixture
def table(folder: Path) -> pd.DataFrame:
    return read(folder)


SHAPES = ["batch", "m", "n", "k"]


@pytest.mark.parametrize(("operator", "op", "shape"), [
    ("linear1", "linear_bias", (1, 2048, 3072, 2048)),
    ("linear2", "linear_bias", (1, 2048, 2048, 1024)),
    ("linear4", "linear_bias", (1, 2048, 2048, 4096)),
    ("linear_final", "linear", (1, 2048, 12672, 2048)),
    ("baddbmm", "baddbmm", (32, 1024, 1024, 128)), ("bmm", "bmm", (32, 1024, 128, 1024)),
])
def test_a_product_has_the_shape_that_one_rank_computes(
        table: pd.DataFrame, operator: str, op: str, shape: tuple[float, ...]) -> None:
    rows = table[table["impl"] == operator]
    assert rows["op"].unique().tolist() == [op] and rows["pass"].tolist() == ["fwd", "bwd"]
    assert rows[SHAPES].to_numpy().tolist() == [list(shape)] * 2


@pytest.mark.parametrize(("operator", "op", "shape"), [
    ("softmax", "softmax", (32 * 1024, 1024)), ("fillmask", "masked_fill", (32 * 1024, 1024)),
    ("ScaledUpperTriangMaskedSoftmax", "causal_softmax", (4 * 1024, 1024)),
    ("gelu", "gelu", (2048, 2560)), ("layernorm", "layernorm", (2048, 2048)),
    ("RoPE", "rope", (4096, 1024)), ("embedding", "embedding", (2048, 2048)),
    ("parallel_cross_entropy_128", "cross_entropy", (3584, 12672)),
])
def test_a_memory_bound_operator_has_rows_and_their_length(
        table: pd.DataFrame, operator: str, op: str, shape: tuple[float, ...]) -> None:
    row = table[table["impl"] == operator].iloc[0]
    assert (row["op"], row["m"], row["n"]) == (op, *shape)


def test_flash_attention_splits_its_heads(table: pd.DataFrame) -> None:
    row = table[table["op"] == "attention"].iloc[1]
    assert row["latency_s"] == pytest.approx(740e-6) and row["pass"] == "bwd"
    assert (row["batch"], row["seq"], row["heads"], row["head_dim"]) == (4, 1536, 8, 128)
    assert row["causal"] == "0" and row["software"] == "flash-attn"


def test_a_sum_without_a_backward_has_none(table: pd.DataFrame) -> None:
    assert table[table["op"] == "res_add"]["pass"].tolist() == ["fwd"]


def test_an_optimizer_step_counts_the_parameters_of_its_stage(table: pd.DataFrame) -> None:
    rows = table[table["op"] == "optimizer"].set_index("impl")
    assert rows["pass"].unique().tolist() == ["step"]
    assert rows.at["optimizer", "m"] == 3e7
    layers = 3 * 12 * 1024**2 / 2
    assert rows.at["middleStage_optimizer", "m"] == layers
    assert rows.at["lastStage_optimizer", "m"] == layers + vocabulary_rows(2) * 1024


def test_times_that_hold_launches_say_so(table: pd.DataFrame) -> None:
    kinds = table.groupby("impl")["timing_kind"].first()
    assert kinds["RoPE"] == kinds["parallel_cross_entropy_128"] == "event"
    assert kinds["optimizer"] == "host" and kinds["linear1"] == kinds["gelu"] == "kernel"


def test_the_table_obeys_the_schema_and_becomes_kernels(table: pd.DataFrame) -> None:
    pytest.importorskip("pandera")
    validate(table)
    assert table["gpu"].unique().tolist() == ["a100-sxm-80gb"]
    assert table["file"][0].startswith("Perlmutter/operator/")
    assert measurements(table).refused == ()


def test_files_with_other_columns_are_all_named(folder: Path) -> None:
    operators = folder / "Perlmutter" / "operator"
    for name in ("gelu", "bmm"):
        (operators / f"{GPU}_{name}_fp16.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError) as caught:
        read(folder)
    assert len(caught.value.problems) == 2 and "bmm" in str(caught.value)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="operator"):
        read(tmp_path)


@pytest.mark.reference
def test_every_shape_is_that_of_the_public_table(reference: Path) -> None:
    ours = read(reference / "kernels" / "estimate-train-time")
    theirs = kernels_long.read(reference / "kernels")
    theirs = theirs[theirs["source"] == SOURCE]
    keys = ["gpu", "op", "pass", "m", "n", "k", "batch", "seq", "heads", "head_dim", "us"]
    # Norms and activations leave the batch blank there; times are rounded.
    counted = [frame.assign(us=(frame["latency_s"] * 1e6).round(2), batch=frame["batch"].fillna(1))
               [keys].fillna(-1).value_counts() for frame in (ours, theirs)]
    shared = [found[found.index.get_level_values("op") != "res_add"] for found in counted]
    missing = shared[1].sub(shared[0], fill_value=0).clip(lower=0).sum()
    assert missing <= 0.001 * shared[1].sum() and len(ours) > 140_000


@pytest.mark.reference
def test_physics_leaves_the_dense_layers_and_takes_a_lost_series(reference: Path) -> None:
    found = measurements(read(reference / "kernels" / "estimate-train-time"))
    rows = pd.DataFrame({"op": found.op, "gpu": found.gpu, "pass": found.passes,
                         "lost": reasons(found) != ""})
    share = rows.groupby(["op", "gpu", "pass"])["lost"].mean()
    assert share["attention", "gh200-96gb", "bwd"] == 1.0
    assert share["linear_bias"].max() == share["layernorm"].max() == 0.0
