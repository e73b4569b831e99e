"""Many (job, strategy) pairs as columns: what lowering, memory and step compute on.

A column has the name of the record field it comes from. Words (precision, recompute ...) become
their position in the vocabulary; :func:`code` translates. Every array has shape (rows,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, get_args

import numpy as np

from predictor.lowering.tables import Columns, GpuTable, Ints, NetworkTable
from predictor.spec import vocabulary
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy

WORDS: dict[str, tuple[str, ...]] = {
    "precision": get_args(vocabulary.Precision),
    "fp8_recipe": get_args(vocabulary.Fp8Recipe),
    "recompute": get_args(vocabulary.Recompute),
    "cp_comm_type": get_args(vocabulary.CpCommType),
    "schedule": get_args(vocabulary.Schedule),
    "optimizer": get_args(vocabulary.Optimizer),
    "grad_reduce_dtype": get_args(vocabulary.ReduceDtype),
    "moe_dispatcher": get_args(vocabulary.MoeDispatcher),
    "cuda_graphs": get_args(vocabulary.CudaGraphs),
    "attention_backend": get_args(vocabulary.AttentionBackend),
    "workload": get_args(vocabulary.Workload),
    "framework": get_args(vocabulary.Framework),
    "implementation": get_args(vocabulary.Implementation),
    "normalization": get_args(vocabulary.Normalization),
    "position_embedding": get_args(vocabulary.PositionEmbedding),
}
MODULES: tuple[str, ...] = get_args(vocabulary.RecomputeModule)


def code(field: str, word: str) -> int:
    """Return the number that stands for ``word`` in the column ``field``."""
    return WORDS[field].index(word)


def module_bit(module: str) -> int:
    """Return the bit of a recompute module in the column ``recompute_modules``."""
    return 1 << MODULES.index(module)


class _RecordColumns(Columns):
    @classmethod
    def from_records(cls, records: Sequence[Any]) -> Self:
        """Return one column per field, read from the records' attributes."""
        return cls(**{f.name: _column(f.name, records) for f in fields(cls)})  # type: ignore[arg-type]


def _column(name: str, records: Sequence[Any]) -> np.ndarray[Any, Any]:
    values: Iterable[Any] = (getattr(record, name) for record in records)
    words = WORDS.get(name)
    if words is not None:
        index = {word: position for position, word in enumerate(words)}
        values = (index[value] for value in values)
    elif name == "recompute_modules":
        values = (sum(module_bit(module) for module in value) for value in values)
    elif name in ("activation_offload", "optimizer_offload", "moe_load_imbalance"):
        return np.array(list(values), dtype=np.float64)
    else:
        values = (0 if value is None else int(value) for value in values)
    return np.array(list(values), dtype=np.int64)


@dataclass(frozen=True)
class ModelColumns(_RecordColumns):
    """See :class:`predictor.spec.model.ModelConfig`."""

    num_layers: Ints
    hidden_size: Ints
    num_attention_heads: Ints
    vocab_size: Ints
    ffn_hidden_size: Ints
    num_query_groups: Ints
    head_dim: Ints
    gated_mlp: Ints
    normalization: Ints
    position_embedding: Ints
    max_position_embeddings: Ints
    add_bias_linear: Ints
    tied_embeddings: Ints
    causal: Ints
    parallel_residual: Ints
    sliding_window: Ints
    full_attention_interval: Ints
    q_lora_rank: Ints
    kv_lora_rank: Ints
    qk_nope_head_dim: Ints
    qk_rope_head_dim: Ints
    v_head_dim: Ints
    num_experts: Ints
    moe_router_topk: Ints
    moe_ffn_hidden_size: Ints
    moe_shared_expert_ffn_hidden_size: Ints
    moe_num_dense_layers: Ints
    moe_layer_interval: Ints
    moe_latent_size: Ints
    mtp_num_layers: Ints
    mamba_num_heads: Ints
    mamba_head_dim: Ints
    mamba_state_dim: Ints
    mamba_num_groups: Ints
    num_encoder_layers: Ints


@dataclass(frozen=True)
class StrategyColumns(_RecordColumns):
    """See :class:`predictor.spec.strategy.Strategy`; booleans are 0 and 1, None is 0."""

    tp: Ints
    pp: Ints
    cp: Ints
    ep: Ints
    etp: Ints
    dp: Ints
    dp_shard: Ints
    vpp: Ints
    micro_batch_size: Ints
    sequence_parallel: Ints
    cp_comm_type: Ints
    zero_stage: Ints
    reshard_after_forward: Ints
    recompute: Ints
    recompute_num_layers: Ints
    recompute_modules: Ints
    """Bit set, see :func:`module_bit`."""
    schedule: Ints
    num_layers_first_stage: Ints
    num_layers_last_stage: Ints
    account_for_embedding_in_split: Ints
    account_for_loss_in_split: Ints
    precision: Ints
    fp8_recipe: Ints
    fp8_param_gather: Ints
    grad_reduce_dtype: Ints
    overlap_grad_reduce: Ints
    overlap_param_gather: Ints
    tp_comm_overlap: Ints
    ep_overlap: Ints
    overlap_p2p: Ints
    moe_dispatcher: Ints
    cuda_graphs: Ints
    activation_offload: np.ndarray[Any, np.dtype[np.float64]]
    optimizer_offload: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class JobColumns(_RecordColumns):
    """See :class:`predictor.spec.job.TrainingJob`."""

    seq_len: Ints
    global_batch_size: Ints
    encoder_seq_len: Ints
    packed_seq_len: Ints
    framework: Ints
    implementation: Ints
    attention_backend: Ints
    optimizer: Ints
    workload: Ints
    lora_rank: Ints
    moe_load_imbalance: np.ndarray[Any, np.dtype[np.float64]]
    make_vocab_size_divisible_by: Ints


@dataclass(frozen=True)
class Batch:
    """Rows of (job, strategy), resolved and legal, as columns."""

    model: ModelColumns
    strategy: StrategyColumns
    job: JobColumns
    device: Ints
    """Row of ``gpus``."""
    network: Ints
    """Row of ``networks``."""
    num_gpus: Ints
    gpus: GpuTable
    networks: NetworkTable
    layer_patterns: tuple[str, ...]
    """Per row, the model's hybrid layer pattern, empty for transformers."""
    layouts: tuple[tuple[int, ...], ...]
    """Per row, the explicit pipeline layout, empty when the split is derived."""

    def __len__(self) -> int:
        return len(self.device)

    @classmethod
    def from_pairs(cls, jobs: Sequence[TrainingJob], strategies: Sequence[Strategy]) -> Batch:
        """Return the batch of resolved ``jobs`` and ``strategies``, pairwise."""
        clusters = [job.cluster for job in jobs]
        unique = list(dict.fromkeys(clusters))
        position = {cluster: index for index, cluster in enumerate(unique)}
        network = np.array([position[cluster] for cluster in clusters], dtype=np.int64)
        return cls(
            model=ModelColumns.from_records([job.model for job in jobs]),
            strategy=StrategyColumns.from_records(strategies),
            job=JobColumns.from_records(jobs),
            device=network,
            network=network,
            num_gpus=np.array([cluster.num_gpus for cluster in clusters], dtype=np.int64),
            gpus=GpuTable.from_gpus([cluster.gpu for cluster in unique]),
            networks=NetworkTable.from_clusters(unique),
            layer_patterns=tuple(job.model.layer_pattern for job in jobs),
            layouts=tuple(strategy.pipeline_layout for strategy in strategies),
        )

    def take(self, index: Ints) -> Batch:
        """Return the rows at ``index``; the GPU and network tables stay whole."""
        return Batch(
            model=self.model.take(index), strategy=self.strategy.take(index),
            job=self.job.take(index), device=self.device[index], network=self.network[index],
            num_gpus=self.num_gpus[index], gpus=self.gpus, networks=self.networks,
            layer_patterns=tuple(self.layer_patterns[i] for i in index),
            layouts=tuple(self.layouts[i] for i in index),
        )

    @cached_property
    def num_microbatches(self) -> Ints:
        """Micro-batches that each data-parallel replica runs in one step."""
        per_pass = self.strategy.micro_batch_size * self.strategy.dp
        return np.maximum(1, self.job.global_batch_size // per_pass)

    @cached_property
    def padded_vocab(self) -> Ints:
        """Vocabulary padded to a multiple of make_vocab_size_divisible_by x tp (Megatron)."""
        multiple = self.job.make_vocab_size_divisible_by * self.strategy.tp
        padded: Ints = -(-self.model.vocab_size // multiple) * multiple
        return padded

    @cached_property
    def tokens(self) -> Ints:
        """Tokens of one micro-batch on one context-parallel rank (before sequence parallelism)."""
        return self.strategy.micro_batch_size * (self.job.seq_len // self.strategy.cp)

    @cached_property
    def ranks_per_domain(self) -> Ints:
        """GPUs of one scale-up domain that this job can use."""
        domain: Ints = np.minimum(self.networks.domain[self.network], self.num_gpus)
        return domain
