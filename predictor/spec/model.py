"""The neural network: dimensions only, independent of how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predictor.spec.checks import STRICT, Checks
from predictor.spec.vocabulary import Normalization, PositionEmbedding


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A transformer, mixture-of-experts, encoder or hybrid Mamba model.

    Field names are those of Megatron-Core and Hugging Face. ``None`` in a field that can be
    derived is replaced on construction, so a constructed record is complete.

    Raises
    ------
    InputError
        With one problem for each field that is out of range or disagrees with another.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: str = "custom"
    num_layers: int
    """Transformer blocks; of an encoder-decoder model, the decoder's. For a hybrid model, one per
    character of ``layer_pattern``."""
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    ffn_hidden_size: int | None = None
    """Inner width of the dense MLP; ``4 * hidden_size`` when not given."""
    num_query_groups: int | None = None
    """Key/value heads; ``num_attention_heads`` when not given (multi-head attention)."""
    head_dim: int | None = None
    """Width of one head; ``hidden_size / num_attention_heads`` when not given."""
    gated_mlp: bool = False
    """SwiGLU and its relatives: two up projections and an elementwise product."""
    normalization: Normalization = "layernorm"
    position_embedding: PositionEmbedding = "rope"
    max_position_embeddings: int = 0
    """Rows of the learned position table; only used with ``position_embedding="learned"``."""
    add_bias_linear: bool = False
    tied_embeddings: bool = False
    causal: bool = True
    """False for encoders: every token attends to every token."""
    parallel_residual: bool = False
    """Attention and MLP read the same input (GPT-J, GPT-NeoX): one tensor-parallel reduction."""
    sliding_window: int = 0
    """Tokens a windowed layer attends to; 0 when no layer is windowed."""
    full_attention_interval: int = 0
    """With a window, every n-th layer attends to everything; 0 means none does."""

    q_lora_rank: int = 0
    """Multi-latent attention (DeepSeek-V2): rank of the query compression, 0 for a plain query."""
    kv_lora_rank: int = 0
    """Rank of the key/value compression; above 0 the model uses multi-latent attention."""
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0

    num_experts: int = 0
    moe_router_topk: int = 0
    moe_ffn_hidden_size: int | None = None
    """Inner width of one routed expert; ``ffn_hidden_size`` when not given."""
    moe_shared_expert_ffn_hidden_size: int = 0
    """Total inner width of the shared experts, 0 when there are none."""
    moe_num_dense_layers: int = 0
    """Leading layers with a dense MLP (``first_k_dense_replace``)."""
    moe_layer_interval: int = 1
    """After the dense layers, every n-th layer is a mixture of experts."""
    moe_latent_size: int = 0
    """Width that tokens are projected to before routed experts, 0 when they keep hidden_size."""
    mtp_num_layers: int = 0
    """Multi-token-prediction blocks after the last layer (DeepSeek-V3)."""

    layer_pattern: str = ""
    """Hybrid models: one character per layer: M Mamba-2, * attention only, - MLP only,
    E mixture of experts only. Empty for transformers."""
    mamba_num_heads: int = 0
    mamba_head_dim: int = 64
    mamba_state_dim: int = 128
    mamba_num_groups: int = 8

    num_encoder_layers: int = 0
    """Encoder-decoder models (T5): encoder blocks, in front of ``num_layers`` decoder blocks
    with cross-attention."""

    def __post_init__(self) -> None:
        derive = object.__setattr__
        check = Checks()
        for field in ("num_layers", "hidden_size", "num_attention_heads", "vocab_size"):
            check.positive(field, getattr(self, field))
        check.raise_problems()
        if self.ffn_hidden_size is None:
            derive(self, "ffn_hidden_size", 4 * self.hidden_size)
        if self.num_query_groups is None:
            derive(self, "num_query_groups", self.num_attention_heads)
        if self.head_dim is None:
            if self.kv_lora_rank == 0:
                check.divides(
                    "head_dim", "num_attention_heads", self.num_attention_heads,
                    "hidden_size", self.hidden_size,
                )
            derive(self, "head_dim", max(1, self.hidden_size // self.num_attention_heads))
        if self.moe_ffn_hidden_size is None:
            derive(self, "moe_ffn_hidden_size", self.ffn_hidden_size)
        self._check_shapes(check)
        self._check_moe(check)
        self._check_hybrid(check)
        check.raise_problems()

    def _check_shapes(self, check: Checks) -> None:
        for field in ("ffn_hidden_size", "num_query_groups", "head_dim"):
            check.positive(field, getattr(self, field))
        for field in (
            "max_position_embeddings", "sliding_window", "full_attention_interval", "q_lora_rank",
            "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
            "mtp_num_layers", "num_encoder_layers",
        ):
            check.not_negative(field, getattr(self, field))
        check.divides(
            "num_query_groups", "num_query_groups", self.num_query_groups or 1,
            "num_attention_heads", self.num_attention_heads,
        )
        if self.kv_lora_rank > 0:
            for field in ("qk_nope_head_dim", "v_head_dim"):
                check.positive(field, getattr(self, field))

    def _check_moe(self, check: Checks) -> None:
        for field in (
            "num_experts", "moe_router_topk", "moe_shared_expert_ffn_hidden_size",
            "moe_num_dense_layers", "moe_latent_size",
        ):
            check.not_negative(field, getattr(self, field))
        check.positive("moe_layer_interval", self.moe_layer_interval)
        if self.num_experts > 0:
            check.positive("moe_ffn_hidden_size", self.moe_ffn_hidden_size or 0)
            check.within("moe_router_topk", self.moe_router_topk, 1, self.num_experts)
            check.within("moe_num_dense_layers", self.moe_num_dense_layers, 0, self.num_layers)
        elif self.moe_router_topk > 0:
            check.add(
                "topk-needs-experts", "moe_router_topk",
                f"moe_router_topk is {self.moe_router_topk} but num_experts is 0",
                "give num_experts or drop moe_router_topk",
            )

    def _check_hybrid(self, check: Checks) -> None:
        pattern = self.layer_pattern
        if not pattern:
            return
        unknown = sorted(set(pattern) - set("M*-E"))
        if unknown:
            check.add(
                "layer-pattern-characters", "layer_pattern",
                f"layer_pattern holds {', '.join(map(repr, unknown))}",
                "use only M (Mamba-2), * (attention), - (MLP) and E (experts)",
            )
        if len(pattern) != self.num_layers:
            check.add(
                "layer-pattern-length", "layer_pattern",
                f"layer_pattern has {len(pattern)} characters but num_layers is {self.num_layers}",
                "give one character per layer",
            )
        if "M" in pattern:
            for field in ("mamba_num_heads", "mamba_head_dim", "mamba_state_dim",
                          "mamba_num_groups"):
                check.positive(field, getattr(self, field))
        if "E" in pattern and self.num_experts == 0:
            check.add(
                "layer-pattern-experts", "layer_pattern",
                "layer_pattern has E layers but num_experts is 0", "give num_experts",
            )
