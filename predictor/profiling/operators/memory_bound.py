"""Operators that move data: norms, activations, softmax, loss, embedding, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from predictor.profiling.operators.registry import Call, Operator, Shape


def _differentiable(
    function: Callable[..., Any], inputs: Callable[[Shape], tuple[Any, ...]]
) -> Callable[[Shape], Mapping[str, Call]]:
    """Return what prepares forward and backward of a function of some tensors."""

    def prepare(shape: Shape) -> Mapping[str, Call]:
        import torch

        given = inputs(shape)
        wanted = [one for one in given if one.requires_grad]
        out = function(*given)
        gradient = torch.randn_like(out)
        return {"fwd": lambda: function(*given),
                "bwd": lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True)}

    return prepare


def _one(shape: Shape) -> tuple[Any, ...]:
    return (shape.tensor(shape.m, shape.n, grad=True),)


def _two(shape: Shape) -> tuple[Any, ...]:
    return (*_one(shape), *_one(shape))


def _weighted(shape: Shape) -> tuple[Any, ...]:
    return (*_one(shape), shape.tensor(shape.n, grad=True))


def _weighted_and_shifted(shape: Shape) -> tuple[Any, ...]:
    return (*_weighted(shape), shape.tensor(shape.n, grad=True))


def _layernorm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, weight.shape, weight, bias)


def _rmsnorm(x: Any, weight: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, weight.shape, weight, 1e-6)


def _swiglu(gate: Any, up: Any) -> Any:
    from torch.nn.functional import silu

    return silu(gate) * up


def _rope_inputs(shape: Shape) -> tuple[Any, ...]:
    import torch

    angle = torch.rand(shape.m, shape.n, device=shape.device)
    x = shape.tensor(shape.m, shape.n, grad=True)
    return x, angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Return ``x`` (..., width) with its halves rotated by angles (RoFormer, arXiv 2104.09864)."""
    import torch

    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _loss(shape: Shape) -> Mapping[str, Call]:
    """Over m tokens and a vocabulary of n."""
    import torch
    from torch.nn.functional import cross_entropy

    logits = shape.tensor(shape.m, shape.n, grad=True)
    target = torch.randint(shape.n, (shape.m,), device=shape.device)
    loss = cross_entropy(logits, target)
    return {"fwd": lambda: cross_entropy(logits, target),
            "bwd": lambda: torch.autograd.grad(loss, logits, retain_graph=True)}


def _embedding(shape: Shape) -> Mapping[str, Call]:
    """m tokens out of a table of k rows of n."""
    import torch
    from torch.nn.functional import embedding

    table = shape.tensor(shape.k, shape.n, grad=True)
    tokens = torch.randint(shape.k, (shape.m,), device=shape.device)
    out = embedding(tokens, table)
    gradient = torch.randn_like(out)
    return {"fwd": lambda: embedding(tokens, table),
            "bwd": lambda: torch.autograd.grad(out, table, gradient, retain_graph=True)}


def _adam(shape: Shape) -> Mapping[str, Call]:
    """One fused AdamW step over m parameters in n tensors."""
    import torch

    each = -(-shape.m // shape.n)
    weights = [shape.tensor(each, grad=True) for _ in range(shape.n)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    return {"step": optimizer.step}


def _permute(shape: Shape) -> Mapping[str, Call]:
    """Gathers m tokens of width n in the order of their experts."""
    import torch

    x = shape.tensor(shape.m, shape.n)
    order = torch.randperm(shape.m, device=shape.device)
    return {"fwd": lambda: x.index_select(0, order)}


def _functional(name: str) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        import torch.nn.functional

        return getattr(torch.nn.functional, name)(x)

    return call


def _softmax(x: Any) -> Any:
    return x.softmax(-1)


def _sum(x: Any, y: Any) -> Any:
    return x + y


def _no_flops(_: Shape, __: str) -> float:
    return 0.0


def _plain(op: str, function: Callable[..., Any], inputs: Callable[[Shape], tuple[Any, ...]]
           ) -> Operator:
    return Operator(op, ("m", "n"), _differentiable(function, inputs), _no_flops,
                    dtypes=("fp32", "bf16", "fp16"))


_TYPES = ("fp32", "bf16", "fp16")
OPERATORS = {
    "layernorm": _plain("layernorm", _layernorm, _weighted_and_shifted),
    "rmsnorm": _plain("rmsnorm", _rmsnorm, _weighted),
    "softmax": _plain("softmax", _softmax, _one),
    "gelu": _plain("gelu", _functional("gelu"), _one),
    "silu": _plain("silu", _functional("silu"), _one),
    "relu": _plain("relu", _functional("relu"), _one),
    "swiglu": _plain("swiglu", _swiglu, _two),
    "res_add": _plain("res_add", _sum, _two),
    "rope": _plain("rope", rotated, _rope_inputs),
    "cross_entropy": Operator("cross_entropy", ("m", "n"), _loss, _no_flops, dtypes=_TYPES),
    "embedding": Operator("embedding", ("m", "n", "k"), _embedding, _no_flops, dtypes=_TYPES),
    "optimizer": Operator("optimizer", ("m", "n"), _adam, _no_flops, impl="fused-adamw",
                          optional={"n": 1.0}, dtypes=("fp32", "bf16")),
    "permute": Operator("permute", ("m", "n"), _permute, _no_flops, dtypes=_TYPES),
}
