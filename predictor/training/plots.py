"""Pictures of a training: predicted against measured times, and errors by size."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.training.fit import FittedModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 20_000
"""Points drawn: more only make the file larger."""
BINS = 24


def model_plots(fitted: FittedModel) -> dict[str, bytes]:
    """Return PNG files by name: ``gemm-predicted.png`` and ``gemm-errors.png``.

    Predictions are those of models that had not seen the row's shape.
    """
    name, residual = fitted.rows.model, fitted.held_out["shape"]
    known = np.flatnonzero(np.isfinite(residual))
    chosen = np.random.default_rng(0).permutation(known)[:MOST_POINTS]
    measured = fitted.rows.measured_s
    return {f"{name}-predicted.png": _predicted(name, measured[chosen], residual[chosen]),
            f"{name}-errors.png": _errors(name, measured[known], residual[known],
                                          fitted.rows.log_ratio[known])}


def _predicted(name: str, measured: Any, residual: Any) -> bytes:
    figure, axes = _axes(f"{name}: shapes never seen", "measured (s)", "predicted (s)")
    axes.loglog(measured, measured * np.exp(-residual), ".", markersize=1.5, alpha=0.4)
    ends = [measured.min(initial=1.0), measured.max(initial=1e-9)]
    axes.plot(ends, ends, linewidth=1, color="black")
    return _png(figure)


def _errors(name: str, measured: Any, residual: Any, log_ratio: Any) -> bytes:
    figure, axes = _axes(f"{name}: median error by size", "measured (s)", "error (%)")
    edges = np.quantile(np.log(measured), np.linspace(0, 1, BINS + 1))
    place = np.clip(np.searchsorted(edges, np.log(measured), side="right") - 1, 0, BINS - 1)
    present = np.unique(place)
    middle = [float(np.median(measured[place == one])) for one in present]
    for label, errors in (("analytic", log_ratio), ("learned", residual)):
        ape = 100 * np.abs(np.expm1(-errors))
        axes.semilogx(middle, [float(np.median(ape[place == one])) for one in present],
                      marker="o", markersize=3, label=label)
    axes.legend()
    return _png(figure)


def _axes(title: str, across: str, up: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
