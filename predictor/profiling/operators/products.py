"""Matrix products: linear layers with both their gradients, and batches of products."""

from __future__ import annotations

from collections.abc import Mapping

from predictor.profiling.operators.registry import Call, Operator, Shape


def _linear(shape: Shape) -> Mapping[str, Call]:
    """Forward (m, k) x (k, n), and the products that give the gradients of input and weight."""
    x, weight = shape.tensor(shape.m, shape.k), shape.tensor(shape.n, shape.k)
    gradient = shape.tensor(shape.m, shape.n)
    return {"fwd": lambda: x @ weight.t(), "dgrad": lambda: gradient @ weight,
            "wgrad": lambda: gradient.t() @ x}


def _batched(shape: Shape) -> Mapping[str, Call]:
    left = shape.tensor(shape.batch, shape.m, shape.k)
    right = shape.tensor(shape.batch, shape.k, shape.n)
    return {"fwd": lambda: left @ right}


def _grouped(shape: Shape) -> Mapping[str, Call]:
    """One product per expert, one after the other, as eager mixtures of experts run them."""
    xs = [shape.tensor(shape.m, shape.k) for _ in range(shape.batch)]
    weights = [shape.tensor(shape.n, shape.k) for _ in range(shape.batch)]
    gradients = [shape.tensor(shape.m, shape.n) for _ in range(shape.batch)]
    return {
        "fwd": lambda: [x @ w.t() for x, w in zip(xs, weights, strict=True)],
        "dgrad": lambda: [g @ w for g, w in zip(gradients, weights, strict=True)],
        "wgrad": lambda: [g.t() @ x for g, x in zip(gradients, xs, strict=True)]}


def _flops(shape: Shape, _: str) -> float:
    return 2.0 * shape.cells.get("batch", 1.0) * shape.m * shape.n * shape.k


OPERATORS = {
    "linear": Operator("linear", ("m", "n", "k"), _linear, _flops),
    "bmm": Operator("bmm", ("batch", "m", "n", "k"), _batched, _flops),
    "grouped_gemm": Operator("grouped_gemm", ("batch", "m", "n", "k"), _grouped, _flops,
                             impl="loop"),
}
