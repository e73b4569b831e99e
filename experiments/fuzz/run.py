"""Throws 20,000 raw JSON objects and 20,000 plausible jobs at the front door.

Each must end within two seconds in a prediction or in InputError: run.py [examples] [seed].
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from predictor.cli.request import KEYS, build
from predictor.spec import vocabulary
from predictor.spec.errors import InputError
from predictor.step.document import document
from predictor.step.predict import predict_step
from predictor.version import __version__

LIMIT_S = 2.0
HERE = Path(__file__).parent


@dataclass
class Tally:
    """What came of the examples."""

    outcomes: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    def run(self, job: dict[str, Any]) -> None:
        """Predict one job; anything but a sound prediction or InputError is raised."""
        start = time.perf_counter()
        try:
            prediction = predict_step(*build(job))
            text = json.dumps(document(prediction, version=__version__), allow_nan=False)
            assert prediction.step_time_s > 0 and math.isfinite(prediction.step_time_s), text
            self.outcomes["predicted"] += 1
        except InputError as error:
            assert error.problems
            assert all(problem.message and problem.remedy for problem in error.problems)
            self.outcomes["refused"] += 1
            self.rules.update({problem.rule for problem in error.problems})
        elapsed = time.perf_counter() - start
        assert elapsed < LIMIT_S, f"took {elapsed:.1f} s"
        self.slowest_s = max(self.slowest_s, elapsed)


scalars = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
           | st.sampled_from([0, 1, 2, 8, -1, 2**31, 2**63, 2**1000, 1e308, "8", "bf16", "\x00"]))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=12), inner, max_size=4), max_leaves=12)
names = st.sampled_from(sorted(KEYS)) | st.text(max_size=12)
whole = st.just({"model": "llama-3-8b", "cluster": "dgx-h100", "seq_len": 2048,
                 "global_batch_size": 64})
known = st.fixed_dictionaries({"model": st.sampled_from(["llama-3-8b", "mixtral-8x7b"]) | anything,
                               "cluster": st.sampled_from(["dgx-h100", "gb200-nvl72"]) | anything})
raw_jobs = st.builds(lambda base, more: {**base, **more}, whole | known | st.just({}),
                     st.dictionaries(names, anything, max_size=8))


def power(largest: int) -> st.SearchStrategy[int]:
    """Powers of two, small ones first, and now and then another number."""
    exponent = largest.bit_length() - 1
    return st.integers(0, exponent).map(lambda n: 2**n) | st.integers(1, largest)


def word(values: Any) -> st.SearchStrategy[str]:
    """One of a closed set of words."""
    return st.sampled_from(get_args(values))


models = st.sampled_from(
    ["llama-3-8b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt-3-175b"]) | st.builds(
    lambda heads, head_dim, **rest: {"hidden_size": heads * head_dim,
                                     "num_attention_heads": heads, **rest},
    heads=power(64), head_dim=st.sampled_from([32, 64, 128]), num_layers=st.integers(1, 60),
    vocab_size=st.integers(1, 300_000), gated_mlp=st.booleans(), tied_embeddings=st.booleans(),
    sliding_window=st.sampled_from([0, 512]), mtp_num_layers=st.integers(0, 1))
clusters = st.sampled_from(["dgx-h100", "dgx-a100-80gb", "gb200-nvl72"]) | st.fixed_dictionaries(
    {"base": st.just("dgx-a100-80gb"), "gpus_per_node": power(8)})
loose_jobs = st.fixed_dictionaries(
    {"model": models, "cluster": clusters, "nodes": power(64), "seq_len": power(65536),
     "global_batch_size": power(4096)},
    optional={
        "tp": power(8), "pp": power(16), "cp": power(8), "ep": power(8), "vpp": power(4),
        "etp": power(4), "micro_batch_size": power(8), "zero_stage": st.integers(0, 3),
        "dp_shard": power(64), "packed_seq_len": power(4096),
        "framework": word(vocabulary.Framework), "precision": word(vocabulary.Precision),
        "schedule": word(vocabulary.Schedule), "recompute": word(vocabulary.Recompute),
        "recompute_num_layers": st.integers(1, 8), "cp_comm_type": word(vocabulary.CpCommType),
        "recompute_modules": st.lists(word(vocabulary.RecomputeModule), max_size=2),
        "attention_backend": word(vocabulary.AttentionBackend),
        "optimizer": word(vocabulary.Optimizer), "moe_dispatcher": word(vocabulary.MoeDispatcher),
        "cuda_graphs": word(vocabulary.CudaGraphs), "workload": word(vocabulary.Workload),
        "lora_rank": st.integers(0, 64), "sequence_parallel": st.booleans(),
        "overlap_grad_reduce": st.booleans(), "overlap_param_gather": st.booleans(),
        "ep_overlap": st.booleans(), "tp_comm_overlap": st.booleans(),
        "moe_load_imbalance": st.floats(1, 4), "optimizer_offload": st.floats(0, 1),
        "activation_offload": st.floats(0, 1), "num_layers_first_stage": st.integers(1, 12),
        "num_layers_last_stage": st.integers(1, 12),
        "account_for_embedding_in_split": st.booleans(),
        "account_for_loss_in_split": st.booleans(),
    })


def tidy(job: dict[str, Any], dp: int, micro_batches: int) -> dict[str, Any]:
    """Return the job with what most often makes one illegal put right."""
    degrees = math.prod(job.get(name, 1) for name in ("tp", "pp", "cp"))
    world = 2 ** math.ceil(math.log2(degrees * dp))
    dropped = ["dp_shard", "vpp", "etp", "num_layers_first_stage", "schedule"]
    if not isinstance(job["model"], str) or job["model"].startswith(("llama", "gpt")):
        dropped += ["ep", "recompute_modules", "ep_overlap"]
    if job.get("recompute") != "full":
        dropped += ["recompute_num_layers"]
    if job.get("recompute") != "selective":
        dropped += ["recompute_modules"]
    job = {name: value for name, value in job.items() if name not in dropped}
    return job | {
        "cluster": {"base": "dgx-h100", "gpus_per_node": min(8, world)},
        "nodes": max(1, world // 8),
        "global_batch_size": job.get("micro_batch_size", 1) * (world // degrees) * micro_batches}


shaped_jobs = loose_jobs | st.builds(tidy, loose_jobs, power(16), power(64))


def fuzz(jobs: st.SearchStrategy[dict[str, Any]], examples: int, number: int) -> dict[str, Any]:
    """Return the tally of ``examples`` jobs drawn with seed ``number``."""
    tally = Tally()

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, print_blob=True,
              phases=[Phase.generate, Phase.shrink],
              suppress_health_check=list(HealthCheck))
    @given(jobs)
    def every_job(job: dict[str, Any]) -> None:
        tally.run(job)

    gc.collect()
    gc.freeze()  # what the fuzzer keeps is not collected on the clock of an example
    start = time.perf_counter()
    every_job()
    return {"examples": sum(tally.outcomes.values()), **tally.outcomes,
            "slowest_s": round(tally.slowest_s, 3),
            "seconds": round(time.perf_counter() - start, 1),
            "rules_met": len(tally.rules), "most_met": dict(tally.rules.most_common(10))}


def main() -> None:
    """Run both kinds and write results.json."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 20261201
    print(f"seed {number}, {examples} examples of each kind")
    predict_step(*build({"model": "llama-3-8b", "cluster": "dgx-h100", "seq_len": 2048,
                         "global_batch_size": 8}))  # imports are not part of the time limit
    results: dict[str, Any] = {"seed": number, "limit_s": LIMIT_S}
    for name, jobs in (("raw", raw_jobs), ("shaped", shaped_jobs)):
        results[name] = fuzz(jobs, examples, number)
        print(name, json.dumps(results[name]))
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
