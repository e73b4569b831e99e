"""Two thousand generated jobs whose predictions change only on purpose.

Run ``python tests/golden.py`` to record them anew, and say in the commit why they changed.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from predictor.catalog import load_cluster, load_model
from predictor.spec.job import TrainingJob
from predictor.spec.resolve import resolve
from predictor.spec.rules import check_strategy
from predictor.spec.strategy import Strategy
from predictor.step.predict import predict_steps

FILE = Path(__file__).with_name("golden.csv")
COUNT = 2000
SEED = 20261201
MODELS = ("gpt-3-1.3b", "gpt-3-13b", "gpt-3-175b", "llama-2-7b", "llama-3-8b", "llama-3-70b",
          "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "gpt-oss-20b", "bert-large",
          "nemotron-h-8b", "mpt-7b")
CLUSTERS = ("dgx-v100", "dgx-a100-80gb", "perlmutter", "dgx-h100", "dgx-h200", "dgx-b200",
            "gb200-nvl72", "mi300x", "frontier", "vista-gh200")
FRAMEWORKS = ("megatron", "megatron-deepspeed", "nemo", "torchtitan", "deepspeed", "huggingface")


def jobs() -> list[tuple[TrainingJob, Strategy]]:
    """Return the same legal pairs every time."""
    dice = random.Random(SEED)
    found: list[tuple[TrainingJob, Strategy]] = []
    while len(found) < COUNT:
        pair = _draw(dice)
        job, strategy, _ = resolve(*pair)
        if not check_strategy(job, strategy):
            found.append(pair)
    return found


def _draw(dice: random.Random) -> tuple[TrainingJob, Strategy]:
    cluster = load_cluster(dice.choice(CLUSTERS), dice.choice((1, 2, 4, 8, 16)))
    pp = dice.choice((1, 1, 2, 4, 8))
    tp = dice.choice((1, 2, 4, 8))
    job = TrainingJob(
        model=load_model(dice.choice(MODELS)), cluster=cluster,
        seq_len=dice.choice((1024, 2048, 4096, 8192)),
        global_batch_size=dice.choice((64, 128, 256, 512, 1024)),
        framework=dice.choice(FRAMEWORKS), attention_backend=dice.choice(
            ("flash", "flash", "eager", "fused-softmax")))
    return job, Strategy(
        tp=tp, pp=pp, cp=dice.choice((1, 1, 1, 2)), ep=dice.choice((1, 1, 2, 8)),
        vpp=dice.choice((1, 1, 2)) if pp > 1 else 1,
        micro_batch_size=dice.choice((1, 2, 4)),
        sequence_parallel=dice.choice((True, False)) if tp > 1 else None,
        zero_stage=dice.choice((0, 1, 2, 3)),
        recompute=dice.choice(("none", "selective", "full")),
        precision=dice.choice(("bf16", "bf16", "fp16", "fp8")),
        overlap_grad_reduce=dice.choice((None, True, False)))


def predictions() -> np.ndarray:
    """Return shape (jobs, 2): step time in seconds and peak allocated bytes."""
    pairs = jobs()
    found = predict_steps([job for job, _ in pairs], [strategy for _, strategy in pairs])
    return np.column_stack([found.step_time_s, found.peak_bytes])


if __name__ == "__main__":
    np.savetxt(FILE, predictions(), fmt="%.9g", delimiter=",",
               header="step_time_s,peak_bytes", comments="")
