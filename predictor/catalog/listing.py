"""What the catalogue holds, for people to read."""

from __future__ import annotations

from typing import Literal, get_args

from predictor.catalog.data import entries
from predictor.spec.vocabulary import Schedule

Kind = Literal["models", "clusters", "gpus", "schedules"]

SCHEDULES = {
    "gpipe": ("All forwards, then all backwards", "Huang et al., arXiv 1811.06965"),
    "1f1b": ("One forward, one backward in turn (PipeDream-Flush)",
             "Narayanan et al., arXiv 2006.09503"),
    "interleaved-1f1b": ("1F1B over several model chunks per device",
                         "Narayanan et al., arXiv 2104.04473"),
    "zb-h1": ("Weight gradients fill the bubble, memory as 1F1B", "Qi et al., arXiv 2401.10241"),
    "zb-1p": ("Zero bubble with about the activations of 1F1B, timed automatically",
              "Qi et al., arXiv 2401.10241"),
    "zb-2p": ("Zero bubble with twice the activations of 1F1B", "Qi et al., arXiv 2401.10241"),
}
"""One line and the source of every schedule of the vocabulary."""


def list_entries(kind: Kind) -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every entry of ``kind``, in catalogue order."""
    if kind == "schedules":
        return [(name, *SCHEDULES.get(name, ("", ""))) for name in get_args(Schedule)]
    return [(name, entry["summary"], entry["source"]) for name, entry in entries(kind).items()]
