"""The words of a job: every closed set of values, under the names users already know."""

from __future__ import annotations

from typing import Literal

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Fp8Recipe = Literal["delayed", "current", "blockwise", "rowwise"]
Recompute = Literal["none", "selective", "full"]
RecomputeModule = Literal[
    "core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts"
]
CpCommType = Literal["p2p", "all_gather", "a2a"]
Schedule = Literal["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-1p", "zb-2p"]
Optimizer = Literal["adam", "adam-8bit", "sgd", "muon", "adafactor"]
ReduceDtype = Literal["fp32", "bf16", "fp16"]
MoeDispatcher = Literal["alltoall", "allgather", "deepep", "hybridep"]
CudaGraphs = Literal["none", "partial", "full"]
AttentionBackend = Literal["flash", "eager", "fused-softmax"]
Workload = Literal["pretrain", "lora", "sft"]
Framework = Literal[
    "megatron", "megatron-deepspeed", "nemo", "torchtitan", "deepspeed", "llm-foundry", "libai",
    "maxtext", "huggingface", "nanotron",
]
Implementation = Literal["transformer-engine", "megatron-fused", "compiled", "eager"]
Normalization = Literal["layernorm", "rmsnorm"]
PositionEmbedding = Literal["learned", "rope", "alibi", "none"]
LinkKind = Literal[
    "nvlink-switch", "nvlink-mesh", "xgmi", "pcie",
    "infiniband", "roce", "slingshot", "efa", "omni-path", "ethernet", "spine", "inter-site",
]
