"""Campaigns run in real processes, alone and as ranks over gloo."""

import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from campaigns import HEAD, KERNELS, profiled, start
from click.testing import CliRunner

from predictor.cli.main import root
from predictor.datasets.steps import read_steps
from predictor.profiling import environment
from predictor.profiling.campaign import parse_campaign, plan
from predictor.profiling.runner import run
from predictor.profiling.store import Store
from predictor.spec.errors import InputError

SIZES = ("hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4, num_layers: 4, "
         "seq_len: 16, vocab_size: 64, global_batch_size: 4")
STRATEGIES = ("{zero_stage: 0}", "{zero_stage: 3}", "{tp: 2}", "{pp: 2, schedule: gpipe}",
              "{pp: 2, schedule: 1f1b}", "{pp: 2, schedule: interleaved-1f1b, vpp: 2}")


def run_it(store):
    return run(store, noisy=True, progress=lambda done, total: None)


def test_kernels_and_layers_become_tables(tmp_path):
    store = profiled(tmp_path / "a", HEAD + KERNELS + (
        "layers:\n  - {style: [llama, gpt], hidden_size: 32, ffn_hidden_size: 64, "
        "num_attention_heads: 4, seq_len: 16}\n  - {style: moe, num_experts: 4, "
        "moe_router_topk: 2, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4, "
        "seq_len: 16}\n"))
    points = pd.read_parquet(store.folder / "points.parquet")
    assert points["status"].tolist() == ["ok"] * 5
    kernels = pd.read_parquet(store.folder / "kernels.parquet")
    assert kernels["pass"].tolist() == ["fwd", "dgrad", "wgrad"] * 2
    layers = pd.read_parquet(store.folder / "layers.parquet")
    assert layers["pass"].tolist() == ["fwd", "bwd"] * 3
    shares = pd.read_parquet(store.folder / "attributions.parquet")
    llama = shares[(shares["style"] == "llama") & (shares["pass"] == "fwd")]
    product = llama[llama["operator"] == "aten::mm"]
    assert product["calls"].item() == 7
    record = store.environment()
    assert {"torch", "python", "cpu", "host"} <= set(record)
    assert re.fullmatch("[0-9a-f]{12}", record["host"])


@pytest.mark.timeout(240)
def test_every_strategy_trains_the_same_model(tmp_path):
    store = profiled(tmp_path / "a", HEAD + (
        f"steps:\n  - {{style: gpt, {SIZES}, ranks: 2, shapes: [{', '.join(STRATEGIES)}]}}\n"
        f"  - {{style: gpt, {SIZES}}}\n"))
    outcomes = store.outcomes()
    assert [one.message for one in outcomes.values() if one.message] == []
    steps = pd.read_csv(store.folder / "steps.csv")
    assert len(steps) == 7
    assert steps["loss"].tolist() == pytest.approx([steps["loss"].iloc[-1]] * 7, rel=1e-5)
    assert (steps["step_time_s"] > 0).all()
    assert steps["num_gpus"].tolist() == [2] * 6 + [1]


@pytest.mark.timeout(120)
def test_collectives_and_their_overlap_are_measured_over_gloo(tmp_path):
    names = "all_reduce, all_gather, reduce_scatter, alltoall, sendrecv, broadcast"
    store = profiled(tmp_path / "a", HEAD + (
        f"collectives:\n  - {{collective: [{names}], dtype: fp32, bytes: 65536, ranks: 2}}\n"
        "  - {collective: all_reduce, dtype: fp32, bytes: 65536, ranks: 2, beside: linear, m: 32, "
        "n: 32, k: 32}\n"
        "  - {collective: all_reduce, dtype: fp32, bytes: 4096, ranks: 4, group: 2, stride: 2, "
        "groups: 2}\n"))
    assert [one.message for one in store.outcomes().values() if one.message] == []
    rows = pd.read_parquet(store.folder / "collectives.parquet")
    assert sorted(rows["collective"]) == sorted([*names.split(", "), "all_reduce"])
    assert (rows["time_us"] > 0).all()
    overlap = pd.read_parquet(store.folder / "overlaps.parquet")
    assert overlap["collective_slowdown"].item() > 0.3


def test_what_cannot_be_measured_is_an_answer(tmp_path):
    store = profiled(tmp_path / "a", HEAD + (
        "kernels:\n  - {family: linear, m: 8, n: 8, k: 8, dtype: [tf32, fp32]}\n"
        "  - {family: softmax, m: 1000000000, n: 1000000, dtype: fp32}\n"))
    assert sorted(one.status for one in store.outcomes().values()) == [
        "ok", "out_of_memory", "unsupported"]


def test_a_point_that_hangs_fails_and_the_rest_goes_on(tmp_path):
    store = profiled(tmp_path / "a", HEAD + "timeout_seconds: 3\n" + (
        "kernels:\n  - {family: linear, m: 20000, n: 20000, k: 20000, dtype: fp32}\n"
        "  - {family: linear, m: 8, n: 8, k: 8, dtype: fp32}\n"))
    slow, quick = (store.outcomes()[point.key] for point in plan(store.campaign()))
    assert (slow.status, quick.status) == ("failed", "ok")
    assert "not done after 3 s" in slow.message


def test_resume_repeats_nothing(tmp_path):
    store = profiled(tmp_path / "a", HEAD + KERNELS)
    before = (store.folder / "journal-0.jsonl").read_bytes()
    run_it(store)
    assert (store.folder / "journal-0.jsonl").read_bytes() == before


def test_parts_share_a_campaign(tmp_path):
    store = start(tmp_path / "a", HEAD + KERNELS)
    for shard, done in (("1/2", 1), ("0/2", 2)):
        run(store, noisy=True, progress=lambda done, total: None, shard=shard)
        assert len(store.outcomes()) == done


def test_environments_do_not_mix(tmp_path):
    store = start(tmp_path / "a", HEAD + KERNELS)
    record = environment.environment(store.campaign()) | {"torch": "1.0", "cores": 512}
    store.keep_environment(record)
    with pytest.raises(InputError) as caught:
        run_it(store)
    assert [one.where for one in caught.value.problems] == ["cores", "torch"]
    assert store.outcomes() == {}


def test_a_machine_without_gpu_is_refused_and_nothing_is_left(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text((HEAD + KERNELS).replace("device: cpu", "device: cuda"))
    done = CliRunner().invoke(root, ["profile", str(file), "--out", str(tmp_path / "a")])
    assert isinstance(done.exception, InputError)
    assert "torch sees none" in str(done.exception)
    assert not (tmp_path / "a").exists()


def test_a_loaded_machine_is_refused_unless_noise_is_taken(tmp_path):
    store = start(tmp_path / "a", HEAD + KERNELS)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with pytest.raises(InputError, match="cores busy"):
            run(store, noisy=False, progress=lambda done, total: None)
    finally:
        for one in burners:
            one.kill()
            one.wait()
    assert not store.folder.exists()


def test_killed_at_any_moment_a_campaign_goes_on_where_it_was(tmp_path):
    text = HEAD + KERNELS.replace("[32, 64]", "{from: 8, to: 64, factor: 1.1}")
    (tmp_path / "c.yaml").write_text(text)
    command = [sys.executable, "-m", "predictor", "profile", str(tmp_path / "c.yaml"), "--out",
               str(tmp_path / "a"), "--noisy"]
    store = Store(tmp_path / "a")
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(store.outcomes()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = store.outcomes()
    assert len(kept) >= 3
    done = subprocess.run([*command, "--resume"], check=True, capture_output=True, text=True)
    assert f"{len(plan(parse_campaign(text)))} ok" in done.stdout
    points = pd.read_parquet(store.folder / "points.parquet")
    assert points["key"].is_unique
    assert set(points["status"]) == {"ok"}
    assert {key: store.outcomes()[key] for key in kept} == kept


def test_measured_steps_are_read_as_jobs(tmp_path):
    store = profiled(tmp_path / "a", HEAD + f"steps:\n  - {{style: gpt, {SIZES}}}\n")
    rows = read_steps(pd.read_csv(store.folder / "steps.csv").assign(gpu="h100-sxm"))
    assert rows.refused == ()
    assert rows.jobs[0].model.hidden_size == 32
    assert rows.strategies[0].precision == "fp32"


HEAVY = {"pydantic", "scipy", "xgboost", "numba", "mlflow", "sklearn", "pandera", "submitit",
         "predictor.catalog", "predictor.timing", "predictor.training"}


def test_a_compute_node_needs_little():
    code = ("import sys, predictor.profiling.worker, predictor.profiling.runner, "
            "predictor.cli.profile, predictor.profiling.layers, predictor.profiling.collectives, "
            "predictor.profiling.steps.training; print(*sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stdout.split())
