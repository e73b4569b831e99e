"""Bytes per parameter of weights, gradients and optimizer, by precision and framework."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.batch import WORDS, Batch, code
from predictor.lowering.holdings import is_frozen
from predictor.lowering.tables import Floats

OPTIMIZER_STATE_BYTES = {"adam": 8.0, "adam-8bit": 2.0, "sgd": 4.0, "muon": 4.0, "adafactor": 0.1}
"""Per trained parameter beside the fp32 master copy (ZeRO, arXiv 1910.02054, section 3.1)."""
MASTER_BYTES = 4.0
FP8_CACHE_BYTES = 1.0
"""Eight-bit copies of the weights that Transformer Engine keeps beside 16-bit ones."""
GRADIENT_BYTES = np.array([4.0, 2.0, 2.0])
"""Main gradients by grad_reduce_dtype: fp32, bf16, fp16."""
DEEPSPEED = ("deepspeed", "megatron-deepspeed")
FP32_PARAMETERS = ("torchtitan", "llm-foundry", "huggingface", "maxtext")
"""Frameworks whose parameters are the fp32 master copy itself, cast when used, as long as it lies
where it is used: not sharded, or gathered layer by layer (FSDP)."""


def is_framework(batch: Batch, *names: str) -> NDArray[np.bool_]:
    """Return shape (rows,): whether the framework is one of ``names``."""
    return np.isin(batch.job.framework, [code("framework", name) for name in names])


def is_wide(batch: Batch) -> NDArray[np.bool_]:
    """Return shape (rows,): whether parameters are fp32 and stay so in every product."""
    return np.isin(batch.strategy.precision, [code("precision", "fp32"), code("precision", "tf32")])


def _parameters_are_masters(batch: Batch) -> NDArray[np.bool_]:
    stage = batch.strategy.zero_stage
    return np.asarray(is_framework(batch, *FP32_PARAMETERS) & ((stage == 0) | (stage == 3)))


def parameter_bytes(batch: Batch) -> Floats:
    """Return shape (rows,): bytes per parameter of what forward reads, masters apart.

    Frozen parameters are never fp32 masters: they are stored as they are used.
    """
    strategy, wide, frozen = batch.strategy, is_wide(batch), is_frozen(batch)
    gathered = np.where(strategy.fp8_param_gather > 0, 1.0, 2.0)
    eight_bit = FP8_CACHE_BYTES + np.where(frozen, 0.0, gathered)
    narrow = strategy.precision >= code("precision", "fp8")
    used = np.where(wide, 4.0, np.where(narrow, eight_bit, 2.0))
    master = _parameters_are_masters(batch) & ~frozen & ~wide
    return np.where(master, 0.0, used)


def gradient_bytes(batch: Batch) -> Floats:
    """Return shape (rows,): bytes per gradient.

    DeepSpeed keeps 16-bit gradients beside fp32 sums (bf16_optimizer.py).
    """
    wide = is_wide(batch)
    fp32 = wide | _parameters_are_masters(batch)
    size = np.where(fp32, 4.0, GRADIENT_BYTES[batch.strategy.grad_reduce_dtype])
    twice = is_framework(batch, *DEEPSPEED) & ~wide & (size == 4.0)
    return size + np.where(twice, 2.0, 0.0)


def optimizer_bytes(batch: Batch) -> Floats:
    """Return shape (rows,): bytes per trained parameter on the device, master copy included."""
    state = np.array([OPTIMIZER_STATE_BYTES[name] for name in WORDS["optimizer"]])
    whole = state[batch.job.optimizer] + np.where(is_wide(batch), 0.0, MASTER_BYTES)
    return np.asarray(whole * (1 - batch.strategy.optimizer_offload))


def step_bytes(batch: Batch) -> Floats:
    """Return shape (rows,): bytes per owned parameter that exist during the optimizer step only.

    DeepSpeed's ZeRO flattens the 16-bit gradients of a rank's share and casts them to fp32
    (stage_1_and_2.py), on the host where the optimizer lies there. Fused optimizers need nothing.
    """
    casts = is_framework(batch, *DEEPSPEED) & (batch.strategy.zero_stage >= 1) \
        & (gradient_bytes(batch) == 2.0)
    return np.where(casts, 6.0 * (1 - batch.strategy.optimizer_offload), 0.0)
