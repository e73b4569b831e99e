"""How many kernels and how much traffic each implementation spends on the same mathematics.

Counts are read from the frameworks' layer code: Transformer Engine (fused norm, RoPE, bias +
activation), Megatron-LM's fused kernels of 2021-2023 (fused layer norm, masked softmax, JIT
bias-GeLU and bias-dropout-add), torch.compile (pointwise chains become one kernel) and eager
PyTorch (each operation apart). Traffic is in element accesses (reads plus writes) per element.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from predictor.lowering.batch import WORDS, Batch
from predictor.lowering.tables import Floats


@dataclass(frozen=True, slots=True)
class Flavour:
    """Accesses per element and launches; ``_f`` forward, ``_b`` backward."""

    norm_f: float
    norm_b: float
    norm_launches: float
    rope_f: float
    rope_launches: float
    activation_f: float
    """Accesses of one MLP activation per element of its output, ungated."""
    activation_b: float
    gated_f: float
    gated_b: float
    activation_launches: float
    residual_f: float
    """Bias, dropout and residual addition together."""
    residual_b: float
    residual_launches: float
    loss_bytes_f: float
    """Bytes per logit."""
    loss_bytes_b: float
    loss_launches: float
    wgrad_accumulates: float
    """1 when the weight-gradient GEMM adds into the main gradient itself."""
    portable_attention: float
    """1 where fused attention is FlashAttention-2 or Triton's, 0 where cuDNN's or the newest."""
    host_forward_s: float
    """Host time per launch in forward: Python, dispatcher, autograd graph, launch."""
    host_backward_s: float


FLAVOURS: dict[str, Flavour] = {
    "transformer-engine": Flavour(
        norm_f=2, norm_b=4, norm_launches=1, rope_f=2, rope_launches=2,
        activation_f=2, activation_b=3, gated_f=3, gated_b=5, activation_launches=1,
        residual_f=3, residual_b=2, residual_launches=1,
        loss_bytes_f=14, loss_bytes_b=6, loss_launches=6, wgrad_accumulates=1,
        portable_attention=0,
        host_forward_s=140e-6, host_backward_s=90e-6),
    "megatron-fused": Flavour(
        norm_f=2, norm_b=4, norm_launches=1, rope_f=6, rope_launches=8,
        activation_f=2, activation_b=3, gated_f=5, gated_b=8, activation_launches=1,
        residual_f=3.5, residual_b=2.5, residual_launches=1,
        loss_bytes_f=32, loss_bytes_b=12, loss_launches=14, wgrad_accumulates=0,
        portable_attention=1,
        host_forward_s=85e-6, host_backward_s=55e-6),
    "compiled": Flavour(
        norm_f=2, norm_b=4, norm_launches=1, rope_f=2, rope_launches=1,
        activation_f=2, activation_b=3, gated_f=3, gated_b=5, activation_launches=1,
        residual_f=3, residual_b=2, residual_launches=0.5,
        loss_bytes_f=12, loss_bytes_b=8, loss_launches=4, wgrad_accumulates=0,
        portable_attention=1,
        host_forward_s=6e-6, host_backward_s=6e-6),
    "eager": Flavour(
        norm_f=3, norm_b=5, norm_launches=2, rope_f=8, rope_launches=10,
        activation_f=4, activation_b=5, gated_f=5, gated_b=8, activation_launches=2,
        residual_f=5, residual_b=4, residual_launches=2,
        loss_bytes_f=24, loss_bytes_b=16, loss_launches=6, wgrad_accumulates=0,
        portable_attention=1,
        host_forward_s=30e-6, host_backward_s=18e-6),
}

_FUSED_LOSS = ("nemo", "maxtext", "llm-foundry")
FUSED_LOSS = np.array([name in _FUSED_LOSS for name in WORDS["framework"]])
"""Frameworks that fuse the loss (llm-foundry: loss_fn fused_crossentropy). Megatron-LM leaves
cross_entropy_loss_fusion off and torchtitan compiled blocks only until 2025."""
_LOSS_OF = WORDS["implementation"].index("megatron-fused")

_ORDERED = [FLAVOURS[word] for word in WORDS["implementation"]]
_TABLE = {f.name: np.array([getattr(flavour, f.name) for flavour in _ORDERED])
          for f in fields(Flavour)}


class FlavourColumns:
    """The flavour of every row of a batch as columns of shape (rows,)."""

    def __init__(self, batch: Batch) -> None:
        self._index = batch.job.implementation
        fusing = WORDS["implementation"].index("transformer-engine")
        fused = FUSED_LOSS[batch.job.framework]
        plain = ~fused & (self._index == fusing)
        self._loss_index = np.where(fused, fusing, np.where(plain, _LOSS_OF, self._index))

    def __getattr__(self, name: str) -> Floats:
        try:
            index = self._loss_index if name.startswith("loss_") else self._index
            column: Floats = _TABLE[name][index]
        except KeyError:
            raise AttributeError(name) from None
        return column
