"""What fused attention kernels need."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, Broken, Rule
from predictor.spec.rules.tensor import has_attention
from predictor.spec.strategy import Strategy

TOO_OLD = frozenset({"kepler", "maxwell", "pascal", "volta", "turing"})
"""FlashAttention-2 starts with Ampere (Dao-AILab/flash-attention README)."""
LARGEST_HEAD = 256
"""Largest head dimension of FlashAttention-2 (same README)."""
OWN_FALLBACK = frozenset({"torchtitan", "huggingface", "deepspeed", "llm-foundry", "maxtext"})
"""Frameworks that reach fused attention through PyTorch or XLA, which have kernels for older
GPUs and larger heads too."""


def flash_attention_in_hardware(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """FlashAttention-2 README, hardware support."""
    gpu = job.cluster.gpu
    if job.attention_backend != "flash" or gpu.architecture not in TOO_OLD:
        return None
    if not has_attention(job.model):
        return None
    return Broken(f"flash attention in {job.framework} needs Ampere or later and {gpu.name} is "
                  f"{gpu.architecture}", "choose attention_backend fused-softmax or eager",
                  "attention_backend")


def flash_attention_head_size(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """FlashAttention-2 README, head dimensions."""
    model = job.model
    head = model.qk_nope_head_dim + model.qk_rope_head_dim if model.kv_lora_rank else model.head_dim
    if job.attention_backend != "flash" or (head or 0) <= LARGEST_HEAD:
        return None
    return Broken(f"flash attention takes heads of at most {LARGEST_HEAD} and head_dim is {head}",
                  "choose attention_backend eager", "attention_backend")


RULES = (
    Rule(flash_attention_in_hardware, ALL - OWN_FALLBACK),
    Rule(flash_attention_head_size, ALL - OWN_FALLBACK),
)
