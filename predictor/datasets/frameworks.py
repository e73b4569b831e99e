"""What a table calls a framework, in the project's words."""

from __future__ import annotations

import re
from functools import lru_cache

from predictor.spec.vocabulary import Framework

_KEYWORDS: tuple[tuple[tuple[str, ...], Framework], ...] = (
    (("megatron", "deepspeed"), "megatron-deepspeed"),
    (("neox",), "megatron-deepspeed"),
    (("torchtitan",), "torchtitan"),
    (("foundry",), "llm-foundry"),
    (("composer",), "llm-foundry"),
    (("libai",), "libai"),
    (("oneflow",), "libai"),
    (("maxtext",), "maxtext"),
    (("paxml",), "maxtext"),
    (("jax",), "maxtext"),
    (("bridge",), "nemo"),
    (("nemo",), "nemo"),
    (("nanotron",), "nanotron"),
    (("megatron",), "megatron"),
    (("deepspeed",), "deepspeed"),
    (("huggingface",), "huggingface"),
    (("hugging face",), "huggingface"),
    (("transformers",), "huggingface"),
)
FALLBACK: Framework = "nemo"
"""Vendors' benchmark submissions that only name a container run NeMo's implementation."""


@lru_cache(maxsize=4096)
def framework_of(text: str) -> tuple[Framework, bool]:
    """Return the framework that ``text`` names and whether it was recognised."""
    lowered = text.lower()
    for words, framework in _KEYWORDS:
        if all(word in lowered for word in words):
            return framework, True
    return FALLBACK, False


MEGATRON_FSDP = 2025
"""Year in which Megatron-LM got ZeRO-2 and ZeRO-3 of its own (Megatron-Core 0.12)."""


def before_megatron_fsdp(version: str, zero_stage: str) -> bool:
    """Return whether sharded gradients or parameters beside Megatron-LM must be DeepSpeed's.

    Only a version that is a year says so.
    """
    year = re.match(r"(20\d\d)\b", version)
    return bool(re.match(r"[23]", zero_stage)) and year is not None \
        and int(year.group(1)) < MEGATRON_FSDP
