"""Scaled dot-product attention, forward and backward, as torch picks its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predictor.profiling.operators.registry import Call, Operator, Shape


def _prepare(shape: Shape) -> Mapping[str, Call]:
    """The grouped keys are repeated where torch has no grouped kernel, which is not timed."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    heads, groups, width = shape.heads, shape.kv_heads, shape.head_dim
    query = shape.tensor(shape.batch, heads, shape.seq, width, grad=True)
    key, value = (shape.tensor(shape.batch, groups, shape.seq_kv, width)
                  .repeat_interleave(heads // groups, 1).detach().requires_grad_()
                  for _ in range(2))

    def forward() -> Any:
        return scaled_dot_product_attention(query, key, value, is_causal=shape.causal)

    out = forward()
    gradient = torch.randn_like(out)
    return {"fwd": forward, "bwd": lambda: torch.autograd.grad(
        out, (query, key, value), gradient, retain_graph=True)}


def _flops(shape: Shape, way: str) -> float:
    """Two products forward and five backward, one of which repeats the scores."""
    share = (shape.seq_kv + 1) / (2.0 * shape.seq_kv) if shape.causal else 1.0
    products = 2 if way == "fwd" else 5
    return 2.0 * products * shape.batch * shape.heads * shape.seq * shape.seq_kv \
        * shape.head_dim * share


OPERATORS = {
    "attention": Operator(
        "attention", ("batch", "seq", "seq_kv", "heads", "kv_heads", "head_dim"), _prepare,
        _flops, impl="sdpa", dtypes=("fp32", "bf16", "fp16")),
}
