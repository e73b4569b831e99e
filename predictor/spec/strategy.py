"""How a job is spread over GPUs: every degree and switch of a parallel strategy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from predictor.spec.checks import STRICT, Checks
from predictor.spec.vocabulary import (
    CpCommType, CudaGraphs, Fp8Recipe, MoeDispatcher, Precision, Recompute, RecomputeModule,
    ReduceDtype, Schedule,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOverride:
    """Run of layers that differ from the strategy's default."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    num_layers: int
    tp: int | None = None
    cp: int | None = None
    zero_stage: int | None = None
    recompute: Recompute | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A parallel strategy in Megatron-Core terms. ``None`` means "the framework's default".

    ``dp`` is derived from the cluster; when it is given it must agree with it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    """Tensor parallelism of the experts; ``tp`` in Megatron when not given."""
    dp: int | None = None
    dp_shard: int | None = None
    """GPUs that optimizer state, gradients or parameters are sharded over; all of ``dp * cp``
    when not given. Smaller than ``dp`` means hybrid sharding (HSDP)."""
    vpp: int = 1
    """Model chunks per pipeline rank (virtual pipeline)."""
    micro_batch_size: int = 1
    sequence_parallel: bool | None = None
    cp_comm_type: CpCommType = "p2p"
    zero_stage: int = 0
    """0 plain data parallel, 1 distributed optimizer, 2 sharded gradients, 3 FSDP."""
    reshard_after_forward: bool = True
    recompute: Recompute = "none"
    recompute_num_layers: int | None = None
    """With full recompute, layers of each chunk of a pipeline rank that are recomputed; all when
    not given."""
    recompute_modules: tuple[RecomputeModule, ...] = ()
    """With selective recompute, what is recomputed; attention core when empty."""
    schedule: Schedule | None = None
    """Pipeline schedule; 1f1b, or interleaved-1f1b when ``vpp`` is above 1, when not given."""
    num_layers_first_stage: int | None = None
    num_layers_last_stage: int | None = None
    pipeline_layout: tuple[int, ...] = ()
    """Explicit layers of every (chunk, rank), chunk-major as Megatron lists them."""
    account_for_embedding_in_split: bool = False
    account_for_loss_in_split: bool = False
    precision: Precision = "bf16"
    fp8_recipe: Fp8Recipe = "delayed"
    fp8_param_gather: bool = False
    grad_reduce_dtype: ReduceDtype | None = None
    """Data type that gradients are accumulated and reduced in."""
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    tp_comm_overlap: bool | None = None
    ep_overlap: bool = False
    overlap_p2p: bool | None = None
    moe_dispatcher: MoeDispatcher = "alltoall"
    cuda_graphs: CudaGraphs = "none"
    activation_offload: float = 0.0
    """Share of the layers whose activations are moved to host memory."""
    optimizer_offload: float = 0.0
    """Share of the optimizer state kept in host memory."""
    layer_overrides: tuple[LayerOverride, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        check = Checks()
        for name in ("tp", "pp", "cp", "ep", "vpp", "micro_batch_size"):
            check.positive(name, getattr(self, name))
        for name in ("etp", "dp", "dp_shard", "recompute_num_layers", "num_layers_first_stage",
                     "num_layers_last_stage"):
            value = getattr(self, name)
            if value is not None:
                check.positive(name, value)
        check.within("zero_stage", self.zero_stage, 0, 3)
        check.within("activation_offload", self.activation_offload, 0, 1)
        check.within("optimizer_offload", self.optimizer_offload, 0, 1)
        if any(layers < 0 for layers in self.pipeline_layout):
            check.add("layout-not-negative", "pipeline_layout",
                      "pipeline_layout holds a negative number of layers",
                      "give 0 or more layers for every chunk")
        check.raise_problems()
