"""Bytes per rank."""

from predictor.memory.ranks import CATEGORIES, MemoryTable, memory_of

__all__ = ["CATEGORIES", "MemoryTable", "memory_of"]
