"""Presets by name (GPUs, clusters, models) and the user's own files.

Reads one JSON file of the catalogue when a name of its kind is asked for, and nothing on import.
"""

from predictor.catalog.listing import list_entries
from predictor.catalog.load import load_cluster, load_gpu, load_model

__all__ = ["list_entries", "load_cluster", "load_gpu", "load_model"]
