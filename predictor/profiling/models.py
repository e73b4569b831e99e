"""Small transformers in plain torch, written as their frameworks' eager code runs them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from predictor.profiling.operators.memory_bound import rotated
from predictor.profiling.shape import Sizes

NORM_EPSILON = 1e-5


class Attention(nn.Module):
    """Causal self-attention. Heads are counted from the projections' width, so that tensor
    parallelism may split them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        bias, width = sizes.style == "gpt", sizes.head_dim
        self.width, self.rope = width, sizes.style != "gpt"
        self.q = nn.Linear(sizes.hidden_size, sizes.num_attention_heads * width, bias=bias)
        self.k = nn.Linear(sizes.hidden_size, sizes.groups * width, bias=bias)
        self.v = nn.Linear(sizes.hidden_size, sizes.groups * width, bias=bias)
        self.out = nn.Linear(sizes.num_attention_heads * width, sizes.hidden_size, bias=bias)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return (batch, seq, hidden)."""
        query, key, value = (self._heads(project(x)) for project in (self.q, self.k, self.v))
        if angles is not None:
            query, key = rotated(query, *angles), rotated(key, *angles)
        repeat = query.shape[1] // key.shape[1]
        if repeat > 1:
            key, value = (one.repeat_interleave(repeat, 1) for one in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)


class Mlp(nn.Module):
    """SwiGLU without biases, or GELU with them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gated, bias = sizes.style != "gpt", sizes.style == "gpt"
        self.up = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size, bias=bias)
        self.down = nn.Linear(sizes.ffn_hidden_size, sizes.hidden_size, bias=bias)
        if self.gated:
            self.gate = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what has the shape of ``x``."""
        up = self.up(x)
        inner = functional.silu(self.gate(x)) * up if self.gated else functional.gelu(up)
        return self.down(inner)


class Experts(nn.Module):
    """A router and one MLP per expert, each run in turn over the tokens sent to it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.topk = sizes.moe_router_topk
        self.router = nn.Linear(sizes.hidden_size, sizes.num_experts, bias=False)
        self.experts = nn.ModuleList(Mlp(sizes) for _ in range(sizes.num_experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return what has the shape of ``x``."""
        tokens = x.flatten(0, -2)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.topk, dim=-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            token, slot = (chosen == index).nonzero(as_tuple=True)
            scaled = expert(tokens[token]) * weights[token, slot].unsqueeze(-1)
            out = out.index_add(0, token, scaled)
        return out.view_as(x)


class Layer(nn.Module):
    """One transformer layer with pre-normalisation."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = norm(sizes), norm(sizes)
        self.attention = Attention(sizes)
        self.mlp = Experts(sizes) if sizes.style == "moe" else Mlp(sizes)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return what has the shape of ``x``, (batch, seq, hidden)."""
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Layers ``first`` up to ``last``, with the embedding before the first and the head after the
    last one: a whole model, or one stage of its pipeline."""

    def __init__(self, sizes: Sizes, first: int = 0, last: int | None = None) -> None:
        super().__init__()
        last = sizes.num_layers if last is None else last
        self.layers = nn.ModuleList(_seeded(index, Layer, sizes) for index in range(first, last))
        self.angles = angles(sizes) if sizes.style != "gpt" else None
        self.register_buffer("places", torch.arange(sizes.seq_len), persistent=False)
        self.embedding = self.positions = self.norm = self.output = None
        if first == 0:
            self.embedding = _seeded(sizes.num_layers, nn.Embedding, sizes.vocab_size,
                                     sizes.hidden_size)
            if sizes.style == "gpt":
                self.positions = _seeded(sizes.num_layers + 1, nn.Embedding, sizes.seq_len,
                                         sizes.hidden_size)
        if last == sizes.num_layers:
            self.norm = norm(sizes)
            self.output = _seeded(sizes.num_layers + 2, nn.Linear, sizes.hidden_size,
                                  sizes.vocab_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, seq, vocabulary), or what the next stage takes.

        ``x`` are tokens (batch, seq) in the first stage and (batch, seq, hidden) in the others.
        """
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(self.places)
        turned = self.angles
        if turned is not None and turned[0].device != x.device:
            turned = self.angles = (turned[0].to(x.device), turned[1].to(x.device))
        for layer in self.layers:
            x = layer(x, turned)
        return x if self.output is None or self.norm is None else self.output(self.norm(x))


def _seeded(seed: int, kind: Any, *arguments: Any, **options: Any) -> Any:
    """Return a module with the weights that a seed gives, whatever was built before it."""
    torch.manual_seed(seed)
    return kind(*arguments, **options)


def norm(sizes: Sizes) -> nn.Module:
    """Return the style's normalisation."""
    kind = nn.LayerNorm if sizes.style == "gpt" else nn.RMSNorm
    return kind(sizes.hidden_size, eps=NORM_EPSILON)


def angles(sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of rotary positions, (seq, head width) each."""
    half = sizes.head_dim // 2
    rates = 10_000.0 ** (-torch.arange(half) / half)
    turned = torch.outer(torch.arange(sizes.seq_len), rates).repeat(1, 2)
    return turned.cos(), turned.sin()


def loss_of(logits: Any, tokens: Tensor) -> Tensor:
    """Return the mean cross-entropy over all tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
