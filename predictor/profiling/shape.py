"""The sizes of a small transformer, and the rules that a campaign's cells must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from predictor.profiling.point import Row
from predictor.spec.errors import Problem

STYLES = ("llama", "gpt", "moe")
"""RMSNorm, RoPE, grouped queries and SwiGLU; LayerNorm, biases and GELU, as Megatron-LM's GPT;
llama with experts in place of the MLP."""
DTYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Sizes:
    """One transformer, in the words of :class:`predictor.spec.model.ModelConfig`."""

    style: str
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    seq_len: int
    micro_batch_size: int = 1
    num_query_groups: int = 0
    """0: as many as heads."""
    num_layers: int = 1
    vocab_size: int = 0
    num_experts: int = 0
    moe_router_topk: int = 0
    dtype: str = "fp32"

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.num_query_groups or self.num_attention_heads

    @classmethod
    def of(cls, spec: Row) -> Sizes:
        """Return the sizes in a specification that was checked; other cells are left aside."""
        names = {field.name for field in fields(cls)}
        cells: dict[str, Any] = {name: cell for name, cell in spec.items() if name in names}
        return cls(**cells)


SIZE_CELLS = tuple(field.name for field in fields(Sizes))
_TEXTS = {"style": STYLES, "dtype": DTYPES}
_NEEDED = ("style", "hidden_size", "ffn_hidden_size", "num_attention_heads", "seq_len")


def size_problems(spec: Row, needed: Sequence[str] = ()) -> list[Problem]:
    """Return everything that is wrong with the sizes of a layer or a model."""
    found = [Problem("layer-cells", f"there is no {name}", "add it", name)
             for name in (*_NEEDED, *needed) if name not in spec]
    for name in SIZE_CELLS:
        if name in spec:
            found += word_or_count(name, spec[name], _TEXTS)
    return found or _agreements(Sizes.of(spec))


def word_or_count(name: str, value: Any, words: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Return what is wrong with a cell that holds one of some words, or a whole number from 0."""
    if name in words:
        good = value in words[name]
        rule = "one of " + ", ".join(words[name])
    else:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        rule = "a whole number"
    return [] if good else [Problem("layer-cells", f"{name} is {rule} and got {value!r}",
                                    "correct it", name)]


def _agreements(sizes: Sizes) -> list[Problem]:
    rules = (
        (min(sizes.hidden_size, sizes.ffn_hidden_size, sizes.num_attention_heads, sizes.seq_len,
             sizes.micro_batch_size, sizes.num_layers) > 0,
         "sizes are above 0", "hidden_size"),
        (sizes.num_attention_heads > 0 and sizes.hidden_size % (2 * sizes.num_attention_heads) == 0,
         f"{sizes.num_attention_heads} heads of an even width do not fill a hidden_size of "
         f"{sizes.hidden_size}", "num_attention_heads"),
        (sizes.groups > 0 and sizes.num_attention_heads % sizes.groups == 0,
         f"{sizes.groups} query groups do not divide {sizes.num_attention_heads} heads",
         "num_query_groups"),
        ((sizes.style == "moe") == (sizes.num_experts > 0)
         and sizes.moe_router_topk <= sizes.num_experts
         and (sizes.moe_router_topk > 0) == (sizes.num_experts > 0),
         "style moe has num_experts and moe_router_topk up to it, and no other style has",
         "num_experts"))
    return [Problem("layer-sizes", message, "correct the sizes", where)
            for holds, message, where in rules if not holds]
