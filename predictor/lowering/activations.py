"""Bytes that forward keeps for backward, per part of a layer and micro-batch.

Follows Korthikanti et al. (arXiv 2205.05198, section 4): 34 s b h bytes of a GPT layer without
fused attention's 5 a s^2 b, split into what tensor and sequence parallelism divide. Gated and
grouped variants follow from the same list of saved tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import WORDS, Batch, code, module_bit
from predictor.lowering.flavour import FUSED_LOSS
from predictor.lowering.parameters import expert_width
from predictor.lowering.parts import NUM_PARTS, Part
from predictor.lowering.shapes import Shapes, local_groups, local_heads
from predictor.lowering.tables import Floats

MASK_BYTES = 1.0
"""A dropout mask keeps one byte per element."""
WIDE = 4.0
"""Bytes of an fp32 element."""
FUSED_LOSS_BYTES = 4.0
"""Per logit while a fused loss runs: 16-bit logits and the gradient that replaces them."""
VOCAB_PARALLEL_LOSS_BYTES = 6.0
"""Per logit in Megatron-Core, which works in place: 16-bit logits and one fp32 copy that becomes
the softmax and then the gradient (tensor_parallel/cross_entropy.py)."""
OLD_VOCAB_PARALLEL_LOSS_BYTES = 10.0
"""The same before it worked in place (Megatron-LM until 2023): exponentials apart."""
TORCH_LOSS_BYTES = 12.0
"""Per logit of torch's cross-entropy in fp32, in backward: the log-softmax, its gradient and the
gradient of the logits."""
LOSS_PARALLEL_BYTES = 16.0
"""The same with the vocabulary split over ranks, where operations are apart: four fp32 tensors
(torch/distributed/tensor/parallel/loss.py)."""


@dataclass(frozen=True, slots=True)
class PartActivations:
    """All arrays have shape (rows, parts), bytes per micro-batch."""

    saved: Floats
    """Kept from forward until backward, after recomputation has dropped what it repeats."""
    whole: Floats
    """Kept when nothing is recomputed: what a recomputed layer needs while it runs again."""
    stream: Floats
    """Shape (rows,): the residual stream that a recomputed layer starts from."""
    working: Floats
    """Alive only while the part runs backward: gathered inputs and gradients."""

    @property
    def repeated(self) -> Floats:
        """What selective recomputation brings back while a part runs backward."""
        return self.whole - self.saved


def part_activations(batch: Batch) -> PartActivations:
    """Return the activation bytes of every part of every row."""
    tensors = _Tensors(batch)
    whole, dropped, working = (np.zeros((len(batch), NUM_PARTS)) for _ in range(3))
    for part in (Part.ATTENTION, Part.LOCAL_ATTENTION, Part.CROSS_ATTENTION):
        whole[:, part], dropped[:, part], working[:, part] = tensors.attention()
    whole[:, Part.MLP], dropped[:, Part.MLP], working[:, Part.MLP] = tensors.mlp()
    whole[:, Part.MOE], dropped[:, Part.MOE], working[:, Part.MOE] = tensors.moe()
    whole[:, Part.MAMBA], working[:, Part.MAMBA] = tensors.mamba()
    encoder = _Tensors(batch, encoder=True)
    whole[:, Part.ENCODER_ATTENTION], dropped[:, Part.ENCODER_ATTENTION], _ = encoder.attention()
    whole[:, Part.ENCODER_MLP], dropped[:, Part.ENCODER_MLP], _ = encoder.mlp()
    whole[:, Part.EMBEDDING] = tensors.mask()
    whole[:, Part.HEAD], working[:, Part.HEAD] = tensors.head()
    whole[:, Part.MTP] = 3 * tensors.stream
    selective = batch.strategy.recompute == code("recompute", "selective")
    saved = whole - np.where(selective[:, None], dropped, 0.0)
    by_operator = selective & (batch.job.framework == code("framework", "torchtitan"))
    kept = tensors.kept_by_operator()
    for part in (Part.ATTENTION, Part.LOCAL_ATTENTION, Part.MLP):
        column = np.minimum(whole[:, part], kept[Part.MLP if part == Part.MLP else Part.ATTENTION])
        saved[:, part] = np.where(by_operator, column, saved[:, part])
    return PartActivations(saved, whole, tensors.stream, working)


class _Tensors:
    """Sizes of the tensors of a layer in bytes, each of shape (rows,)."""

    def __init__(self, batch: Batch, *, encoder: bool = False) -> None:
        shapes = Shapes.of(batch, encoder=encoder)
        self.batch, self.shapes = batch, shapes
        precision = batch.strategy.precision
        full = (precision == code("precision", "fp32")) | (precision == code("precision", "tf32"))
        self.element = np.where(full, 4.0, 2.0)
        narrow = precision >= code("precision", "fp8")
        self.linear_input = np.where(narrow, 1.0, self.element)
        self.stream = self.element * shapes.norm_tokens * shapes.hidden
        self.normed = self.linear_input * shapes.norm_tokens * shapes.hidden
        self.gathered = self.element * shapes.tokens * shapes.hidden
        modules = batch.strategy.recompute_modules
        self.modules = np.where(modules > 0, modules, module_bit("core_attn"))
        frozen = batch.job.workload == code("workload", "lora")
        # A frozen matrix has no weight gradient and keeps no input; adapters sit on attention.
        self.kept_input = np.where(frozen, 0.0, 1.0)

    def recomputes(self, *modules: str) -> Floats:
        """1 where any of ``modules`` is on the row's list."""
        bits = sum(module_bit(module) for module in modules)
        return np.asarray((self.modules & bits > 0).astype(float))

    def dropout(self) -> Floats:
        """1 for models that are trained with dropout: GPT, BERT, T5."""
        model = self.batch.model
        return np.asarray(((model.position_embedding == code("position_embedding", "learned"))
                           & (model.add_bias_linear > 0)).astype(float))

    def mask(self) -> Floats:
        """Dropout mask of the residual stream."""
        return self.dropout() * MASK_BYTES * self.shapes.norm_tokens * self.shapes.hidden

    def kept_by_operator(self) -> dict[Part, Floats]:
        """What torchtitan's selective recomputation keeps: every second product and attention's
        result (torchtitan distributed/activation_checkpoint.py): q, v, w1 and w2 of a Llama layer.
        """
        model, tokens = self.batch.model, self.shapes.tokens
        heads, groups = local_heads(self.batch), local_groups(self.batch)
        width = model.head_dim
        attention = self.stream + self.element * tokens * width * (2 * heads + groups) \
            + 4.0 * tokens * heads
        up = self.element * tokens * model.ffn_hidden_size / self.shapes.tp
        return {Part.ATTENTION: attention, Part.MLP: up + self.gathered}

    def attention(self) -> tuple[Floats, Floats, Floats]:
        """Norm input and output, q, k, v, context and its statistics, or the score matrix."""
        model, tokens = self.batch.model, self.shapes.tokens
        heads, groups = local_heads(self.batch), local_groups(self.batch)
        latent = model.kv_lora_rank > 0
        query = np.where(latent, model.qk_nope_head_dim + model.qk_rope_head_dim, model.head_dim)
        value = np.where(latent, model.v_head_dim, model.head_dim)
        held = np.where(latent, heads, groups)
        qkv = self.element * tokens * (heads * query + held * (query + value))
        context = self.element * tokens * heads * value
        narrow = self.linear_input < self.element
        context = context + np.where(narrow, tokens * heads * value, 0.0)
        latents = self.element * self.shapes.norm_tokens * 2 * (
            model.q_lora_rank + model.kv_lora_rank)
        flash = self.batch.job.attention_backend == code("attention_backend", "flash")
        pairs = self.shapes.samples * heads
        scores = pairs * self.shapes.local_len * self.shapes.seq_len
        # The softmax and, with dropout, its mask and what is left: 5 a s^2 b in 16 bits. Eager
        # models compute the softmax in fp32 and keep that too (transformers modeling_llama.py).
        kept = self.element + self.dropout() * (self.element + MASK_BYTES)
        eager = self.batch.job.attention_backend == code("attention_backend", "eager")
        kept = kept + np.where(eager & (self.element < WIDE), WIDE, 0.0)
        core = np.where(flash, 4.0 * tokens * heads, kept * scores)
        whole = self.stream + self.normed + qkv + context + core + self.mask() \
            + np.where(latent, latents, 0.0)
        dropped = (self.recomputes("core_attn") * core + self.recomputes("layernorm") * self.normed
                   + self.recomputes("mla_up_proj") * np.where(latent, qkv, 0.0))
        return whole, dropped, 2 * self.gathered + qkv

    def mlp(self) -> tuple[Floats, Floats, Floats]:
        """Norm input and output, up projection, activation."""
        width = self.batch.model.ffn_hidden_size / self.shapes.tp
        inner, into = self._feed_forward(self.shapes.tokens * width)
        normed = self.normed * self.kept_input
        whole = self.stream + normed + inner + self.mask()
        dropped = self.recomputes("mlp") * inner + self.recomputes("layernorm") * normed
        return whole, dropped, 2 * self.gathered + into

    def _feed_forward(self, elements: Floats) -> tuple[Floats, Floats]:
        """Return what is saved, and the gradient of the activation's input.

        By the time that gradient is there, the activation has been freed, and its gradient lies
        where it was.
        """
        ups = np.where(self.batch.model.gated_mlp > 0, 2.0, 1.0)
        into = self.element * elements * ups
        out = self.linear_input * elements
        return into + self.kept_input * out, into

    def moe(self) -> tuple[Floats, Floats, Floats]:
        """Norm, router, dispatched tokens, expert and shared-expert inner tensors."""
        model, strategy = self.batch.model, self.batch.strategy
        topk = model.moe_router_topk
        spread = np.where(self.shapes.sequence_parallel > 0, strategy.etp, 1)
        busiest = np.where(strategy.ep > 1, self.batch.job.moe_load_imbalance, 1.0)
        copies = self.shapes.norm_tokens * topk * spread * busiest
        width = expert_width(self.batch)
        dispatched = self.linear_input * copies * width
        inner, into = self._feed_forward(copies * model.moe_ffn_hidden_size / strategy.etp)
        activation = self.linear_input * copies * model.moe_ffn_hidden_size / strategy.etp
        shared, shared_in = self._feed_forward(
            self.shapes.tokens * model.moe_shared_expert_ffn_hidden_size / self.shapes.tp)
        router = 4.0 * self.shapes.norm_tokens * model.num_experts * 2
        block = router + dispatched + inner + shared
        whole = self.stream + self.normed + block
        dropped = np.minimum(block, self.recomputes("moe") * block
                             + self.recomputes("moe_act") * activation
                             + self.recomputes("shared_experts") * shared) \
            + self.recomputes("layernorm") * self.normed
        return whole, dropped, 2 * self.element * copies * width + into + shared_in

    def mamba(self) -> tuple[Floats, Floats]:
        """Norm, in projection, convolution and scan of Mamba-2."""
        model, tokens = self.batch.model, self.shapes.tokens
        inner = model.mamba_num_heads * model.mamba_head_dim / self.shapes.tp
        states = model.mamba_num_groups * model.mamba_state_dim / self.shapes.tp
        projected = self.element * tokens * (2 * inner + 2 * states)
        scanned = self.element * tokens * (2 * inner + 2 * states)
        return self.stream + self.normed + projected + scanned, self.gathered + projected

    def head(self) -> tuple[Floats, Floats]:
        """Final norm; logits and loss, which last for one micro-batch's loss only."""
        vocab = self.batch.padded_vocab / self.shapes.tp
        logits = self.shapes.tokens * vocab
        # Backward of the product: logits, their gradient and the weight's, all in 16 bits.
        weight = self.element * (2 * logits + vocab * self.shapes.hidden * self.kept_input)
        return 2 * self.stream, np.maximum(self._loss_bytes() * logits, weight) + self.gathered

    def _loss_bytes(self) -> Floats:
        """Most bytes per logit from the logits to their gradient."""
        job = self.batch.job
        fused = FUSED_LOSS[job.framework]
        by_implementation = np.array([{
            "transformer-engine": VOCAB_PARALLEL_LOSS_BYTES,
            "megatron-fused": OLD_VOCAB_PARALLEL_LOSS_BYTES,
        }.get(name, TORCH_LOSS_BYTES) for name in WORDS["implementation"]])
        plain = by_implementation[job.implementation]
        split = (plain == TORCH_LOSS_BYTES) & (self.shapes.tp > 1)
        plain = np.where(split, LOSS_PARALLEL_BYTES, plain)
        return np.where(fused, FUSED_LOSS_BYTES, plain)
