"""A training job: a model on a cluster with a batch, in a framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predictor.spec.checks import STRICT, Checks
from predictor.spec.cluster import Cluster
from predictor.spec.model import ModelConfig
from predictor.spec.vocabulary import (
    AttentionBackend, Framework, Implementation, Optimizer, Workload,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What is trained, on what, with which batch. A :class:`Strategy` says how it is spread."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    model: ModelConfig
    cluster: Cluster
    seq_len: int
    global_batch_size: int
    encoder_seq_len: int | None = None
    """Encoder tokens of an encoder-decoder model; ``seq_len`` when not given."""
    packed_seq_len: int | None = None
    """Mean length of the documents packed into one sequence: attention does not cross them."""
    framework: Framework = "megatron"
    implementation: Implementation | None = None
    """Which kernels run: the framework's own choice when not given."""
    attention_backend: AttentionBackend = "flash"
    optimizer: Optimizer = "adam"
    workload: Workload = "pretrain"
    lora_rank: int = 0
    """Rank of the trained adapters; needed for ``workload="lora"``."""
    moe_load_imbalance: float = 1.0
    """Tokens of the busiest expert rank over the mean: 1 is perfectly balanced routing."""
    make_vocab_size_divisible_by: int = 128

    def __post_init__(self) -> None:
        check = Checks()
        for name in ("seq_len", "global_batch_size", "make_vocab_size_divisible_by"):
            check.positive(name, getattr(self, name))
        for name in ("encoder_seq_len", "packed_seq_len"):
            value = getattr(self, name)
            if value is not None:
                check.positive(name, value)
        check.not_negative("lora_rank", self.lora_rank)
        check.within("moe_load_imbalance", self.moe_load_imbalance, 1, 1024)
        if self.workload == "lora" and self.lora_rank == 0:
            check.add("lora-needs-rank", "lora_rank", "workload lora needs lora_rank above 0",
                      "give lora_rank, 16 being a common choice")
        check.raise_problems()
