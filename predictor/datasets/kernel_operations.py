"""What the operations of the tidy kernel table move: reads plus writes of each element."""

from __future__ import annotations

from dataclasses import dataclass

from predictor.lowering.tables import KernelKind

GEMMS = {"linear": KernelKind.GEMM, "linear_bias": KernelKind.GEMM, "gemm": KernelKind.GEMM,
         "bmm": KernelKind.BATCHED_GEMM, "baddbmm": KernelKind.BATCHED_GEMM,
         "grouped_gemm": KernelKind.GROUPED_GEMM}


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """Least traffic of a memory-bound operation, each way.

    ``forward`` and ``backward`` are reads plus writes per element in the operation's own type;
    ``other_bytes`` per element come on top, in types of their own.
    """

    kind: KernelKind
    forward: float
    backward: float
    forward_launches: float = 1.0
    backward_launches: float = 1.0
    other_bytes: float = 0.0


_UNARY = MemoryOp(KernelKind.ELEMENTWISE, 2, 3)
_BINARY = MemoryOp(KernelKind.ELEMENTWISE, 3, 3)
_GATED = MemoryOp(KernelKind.ELEMENTWISE, 3, 5)
MEMORY_OPS = {
    "layernorm": MemoryOp(KernelKind.NORM, 2, 3), "rmsnorm": MemoryOp(KernelKind.NORM, 2, 3),
    "softmax": MemoryOp(KernelKind.SOFTMAX, 2, 3),
    # Reads the triangle that is left, writes the zeros of the other one too.
    "causal_softmax": MemoryOp(KernelKind.SOFTMAX, 1.5, 1.5),
    # Part of an unfused softmax: reads a mask that it broadcasts, unlike other elementwise kernels.
    "masked_fill": MemoryOp(KernelKind.SOFTMAX, 2, 2),
    "gelu": _UNARY, "silu": _UNARY, "relu": _UNARY, "tanh": _UNARY, "act": _GATED,
    "swiglu": _GATED, "res_add": _BINARY, "add": _BINARY, "mul": _BINARY, "div": _BINARY,
    "addu": _UNARY, "mulu": _UNARY, "divu": _UNARY, "powu": _UNARY, "pow": _BINARY,
    "rope": MemoryOp(KernelKind.ELEMENTWISE, 2, 2),
    "cross_entropy": MemoryOp(KernelKind.CROSS_ENTROPY, 1, 2),
    "embedding": MemoryOp(KernelKind.EMBEDDING, 2, 3),
    "permute": MemoryOp(KernelKind.PERMUTE, 2, 2),
    # Adam keeps its moments in the parameters' type where a source gives no other: reads
    # parameter, gradient and two moments, writes all but the gradient.
    "optimizer": MemoryOp(KernelKind.OPTIMIZER, 7, 7),
    # The type of the row is the one written; what is read has 16 bits.
    "quantize": MemoryOp(KernelKind.ELEMENTWISE, 1, 1, other_bytes=2.0),
}
"""Operations as one fused kernel. The n of ``act`` and ``swiglu`` is the width of the output."""
CHAINS = {
    # Query and key each: two products, half a negation, a concatenation and a sum. Backward: the
    # products again, zero-filled gradients of both slices and the sum of all three branches.
    ("rope", "RoPE"): MemoryOp(KernelKind.ELEMENTWISE, 20, 30, 10, 18),
    # Norm, division by it, product with a weight in single precision (counted as two).
    ("rmsnorm", "RMSlayernorm"): MemoryOp(KernelKind.NORM, 6, 20, 5, 12),
    # Maximum, difference, exponential, sum, quotient over the logits; small kernels per token.
    ("cross_entropy", "parallel_cross_entropy_128"):
        MemoryOp(KernelKind.CROSS_ENTROPY, 8, 2, 15, 6),
    # The in-place fill of a view; its backward copies the gradient, fills a clone, copies back.
    ("masked_fill", "fillmask"): MemoryOp(KernelKind.ELEMENTWISE, 2, 8, 1, 5),
    # Zero-fill of the dense gradient (counted with the table), sort of the tokens, scatter.
    ("embedding", "embedding"): MemoryOp(KernelKind.EMBEDDING, 2, 2, 1, 4),
}
"""Operations that an implementation (second word) runs as a chain of unfused kernels: total
traffic and launches, after GPT-NeoX's code, which estimate-train-time samples. A least count."""
PORTABLE = frozenset({"flash_attn_func", "flash_atten", "flash_attention", "flash_attention_det",
                      "pyt_flash_attention"})
"""Implementations of fused attention that are FlashAttention-2."""


def portable_attention(implementation: str) -> bool:
    """Return whether an attention kernel is FlashAttention-2 or Triton, not the vendor's."""
    words = implementation.lower()
    return implementation in PORTABLE or "triton" in words or words.endswith("fa2")


def memory_op(op: str, implementation: str) -> MemoryOp:
    """Return the traffic of a memory-bound operation, of its chain where it runs as one."""
    return CHAINS.get((op, implementation)) or MEMORY_OPS[op]
