"""Kernels and collectives of a mixture-of-experts block (Megatron-Core token dispatch)."""

from __future__ import annotations

import numpy as np

from predictor.lowering.attention import emit_norm, emit_residual
from predictor.lowering.batch import Batch
from predictor.lowering.emitter import Emitter, module_mask
from predictor.lowering.groups import Group, expert_group, expert_tensor_group
from predictor.lowering.mlp import emit_activation, emit_feed_forward
from predictor.lowering.parameters import expert_width
from predictor.lowering.parts import Part
from predictor.lowering.shapes import Shapes, is_word
from predictor.lowering.tables import CollectiveKind, Floats, KernelKind, Phase, Stream
from predictor.lowering.tensor_parallel import enter_block, leave_block

BLOCK = module_mask("moe")
ACTIVATION = module_mask("moe", "moe_act")
SHARED = module_mask("moe", "shared_experts")
ROUTER_LAUNCHES = 12.0
"""Softmax, top-k, scatter of the routing map, histogram, auxiliary loss: small kernels each."""


def emit_moe(emitter: Emitter, shapes: Shapes) -> None:
    """Add one block: norm, router, dispatch, routed and shared experts, combine, residual."""
    part = Part.MOE
    if not np.any(emitter.batch.model.num_experts > 0):
        return
    emit_norm(emitter, part, shapes)
    _router(emitter, shapes)
    _latent(emitter, shapes)
    _dispatch_and_combine(emitter, shapes)
    _experts(emitter, shapes)
    _shared(emitter, shapes)
    emit_residual(emitter, part, shapes)


def _router(emitter: Emitter, shapes: Shapes) -> None:
    """Router GEMM and top-k on the rank's own tokens, in full precision."""
    model = emitter.batch.model
    experts = np.maximum(model.num_experts, 1).astype(float)
    emitter.linear(Part.MOE, m=shapes.norm_tokens, n=experts, k=shapes.hidden, quantized=False,
                   module=BLOCK)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        emitter.memory(KernelKind.SOFTMAX, Part.MOE, phase, elements=shapes.norm_tokens * experts,
                       accesses=8.0, element_bytes=4.0, width=experts, launches=ROUTER_LAUNCHES,
                       module=BLOCK)


def _latent(emitter: Emitter, shapes: Shapes) -> None:
    """Projections into and out of the latent width of the routed experts."""
    latent = emitter.batch.model.moe_latent_size.astype(float)
    used = (latent > 0).astype(float)
    width = np.maximum(latent, 1.0)
    emitter.linear(Part.MOE, m=shapes.norm_tokens, n=width, k=shapes.hidden, count=used,
                   module=BLOCK)
    emitter.linear(Part.MOE, m=shapes.norm_tokens, n=shapes.hidden, k=width, count=used,
                   module=BLOCK)


def routed_tokens(emitter: Emitter, shapes: Shapes) -> Floats:
    """Token copies that the busiest rank's experts process.

    Every rank sends ``top-k`` copies of its own tokens and receives as many on average; expert
    tensor parallelism gathers the tokens of its group.
    """
    batch = emitter.batch
    own = shapes.norm_tokens * batch.model.moe_router_topk
    gathered = np.where(shapes.sequence_parallel > 0, own * batch.strategy.etp, own)
    busiest: Floats = gathered * np.where(batch.strategy.ep > 1, batch.job.moe_load_imbalance, 1.0)
    return busiest


def _dispatch_and_combine(emitter: Emitter, shapes: Shapes) -> None:
    """Permute, all-to-all there and back, and the same in backward."""
    batch = emitter.batch
    width = expert_width(batch)
    copies = shapes.norm_tokens * batch.model.moe_router_topk
    elements = copies * width
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        # Permute reads a token once per copy and writes each; unpermute the other way round.
        emitter.memory(KernelKind.PERMUTE, Part.MOE, phase, elements=elements, accesses=4.0,
                       width=width, launches=6.0, module=BLOCK)
    group = expert_group(batch)
    size = elements * emitter.element_bytes * _sent_share(batch, group)
    hidden = np.where(batch.strategy.ep_overlap > 0, 0.0, 1.0)
    gathers = is_word(batch.strategy.moe_dispatcher, "moe_dispatcher", "allgather").astype(float)
    tokens = shapes.norm_tokens * width * emitter.element_bytes
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        emitter.collective(CollectiveKind.ALL_TO_ALL, Part.MOE, phase, Stream.EP, group=group,
                           size_bytes=size, count=2 * (1 - gathers) * hidden, module=BLOCK)
        emitter.collective(CollectiveKind.ALL_TO_ALL, Part.MOE, phase, Stream.EP_HIDDEN,
                           group=group, size_bytes=size,
                           count=2 * (1 - gathers) * (1 - hidden), module=BLOCK)
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER):
            emitter.collective(kind, Part.MOE, phase, Stream.EP, group=group,
                               size_bytes=tokens * batch.strategy.ep, count=gathers, module=BLOCK)
    # An all-gather has brought whole tokens; all-to-all one copy for every expert chosen.
    held = np.where(gathers > 0, tokens * batch.strategy.ep, elements * emitter.element_bytes)
    _expert_tensor_parallel(emitter, held)


def _sent_share(batch: Batch, group: Group) -> Floats:
    """Copies that leave a domain over those that all-to-all would send.

    DeepEP and HybridEP send a token once to each domain that holds any of its k experts and copy
    it there: D (1 - (1 - 1/D)^k) of k copies when experts are drawn evenly over D domains.
    """
    once = is_word(batch.strategy.moe_dispatcher, "moe_dispatcher", "deepep", "hybridep")
    domains = np.maximum(group.domains, 1).astype(float)
    topk = np.maximum(batch.model.moe_router_topk, 1)
    visited = domains * (1 - (1 - 1 / domains) ** topk)
    return np.where(once & (group.domains > 1), np.minimum(1.0, visited / topk), 1.0)


def _expert_tensor_parallel(emitter: Emitter, size: Floats) -> None:
    """Gather dispatched tokens over the expert-tensor group and sum its outputs."""
    batch = emitter.batch
    group = expert_tensor_group(batch)
    whole = size * batch.strategy.etp
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER):
            emitter.collective(kind, Part.MOE, phase, Stream.TP, group=group, size_bytes=whole,
                               module=BLOCK)


def _experts(emitter: Emitter, shapes: Shapes) -> None:
    """Grouped GEMMs over the rank's experts, with the mean number of tokens each."""
    batch = emitter.batch
    model = batch.model
    experts = np.maximum(1.0, model.num_experts / batch.strategy.ep)
    copies = routed_tokens(emitter, shapes)
    tokens = np.maximum(1.0, copies / experts)
    inner = np.maximum(model.moe_ffn_hidden_size / batch.strategy.etp, 1.0)
    ups = np.where(model.gated_mlp > 0, 2.0, 1.0)
    width = expert_width(batch)
    grouped = {"groups": experts, "kind": KernelKind.GROUPED_GEMM, "module": BLOCK}
    emitter.linear(Part.MOE, m=tokens, n=ups * inner, k=width, **grouped)  # type: ignore[arg-type]
    emit_activation(emitter, Part.MOE, elements=copies * inner, module=ACTIVATION)
    emitter.linear(Part.MOE, m=tokens, n=width, k=inner, **grouped)  # type: ignore[arg-type]


def _shared(emitter: Emitter, shapes: Shapes) -> None:
    """Shared experts: a dense tensor-parallel block beside the routed ones."""
    model = emitter.batch.model
    width = model.moe_shared_expert_ffn_hidden_size / shapes.tp
    used = (width > 0).astype(float)
    emit_feed_forward(emitter, Part.MOE, tokens=shapes.tokens, width=np.maximum(width, 1.0),
                      module=SHARED, count=used)
    if np.any(used > 0):
        before = len(emitter.collectives)
        enter_block(emitter, Part.MOE, shapes, module=SHARED)
        leave_block(emitter, Part.MOE, shapes, module=SHARED)
        emitter.scale_collectives(before, used)
