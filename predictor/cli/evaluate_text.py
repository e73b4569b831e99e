"""An evaluation as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from predictor.cli.predictor_option import ANALYTIC, SHORT
from predictor.cli.step_text import NAMES

if TYPE_CHECKING:
    from predictor.training.evaluate import EvaluationReport

WORST = 10
EXPLAINED = 3
"""Causes shown for each of the worst rows."""
UNITS = {"peak_memory": "bytes"}


def report(found: EvaluationReport) -> str:
    """Return the whole report."""
    parts = [_head(found), _errors(found), _order(found), _refusals(found), _worst(found)]
    return "\n\n".join(part for part in parts if part)


def _head(found: EvaluationReport) -> str:
    untimed = f", {found.n_untimed} without a measurement" if found.n_untimed else ""
    speed = found.rows / found.seconds if found.seconds else 0.0
    return (f"{found.quantity}: {found.predicted} of {found.rows} rows predicted{untimed}, "
            f"{found.errors.rows} scored ({_predictor(found)}, {speed:,.0f} rows/s)")


def _predictor(found: EvaluationReport) -> str:
    return found.predictor if found.predictor == ANALYTIC \
        else f"predictor {found.predictor[:SHORT]}"


def _errors(found: EvaluationReport) -> str:
    if not found.errors.rows:
        return "no row has both a measurement and a prediction"
    lines = [f"{found.group_by or 'rows':<28}{'rows':>6}{'MAPE':>9}{'median':>9}{'bias':>9}"
             f"{'max':>10}"]
    for name, scores in [*found.by_group.items(), ("all", found.errors)]:
        if scores.rows:
            lines.append(f"{name[:27]:<28}{scores.rows:>6}{_percent(scores.mape):>9}"
                         f"{_percent(scores.median_ape):>9}{_percent(scores.bias, sign=True):>9}"
                         f"{_percent(scores.max_ape):>10}")
    if len(found.by_group) > 1:
        lines.append(f"{'mean over groups':<28}{'':>6}{_percent(found.mape_group_mean):>9}")
    if found.interval_coverage is not None:
        lines.append(f"intervals cover {_percent(found.interval_coverage)} of the rows, half width "
                     f"{_percent(found.interval_half_width)}")
    return "\n".join(lines)


def _order(found: EvaluationReport) -> str:
    lines = []
    for ranked, kind in ((found.ranking, ""), (found.ranking_apart, " that mix releases")):
        if ranked.groups:
            lines.append(
                f"order of strategies in {ranked.groups} groups{kind}: Kendall tau "
                f"{ranked.kendall_tau_mean:.2f}, first choice slower than the best by "
                f"{_percent(ranked.top1_regret_mean)} (at most {_percent(ranked.top1_regret_max)})")
    memory = found.out_of_memory
    if memory["rows"]:
        lines.append(f"{memory['predicted_not_to_fit']} of {memory['rows']} runs that were out of "
                     "memory were predicted not to fit")
    if memory["ran_but_predicted_not_to_fit"]:
        lines.append(f"{memory['ran_but_predicted_not_to_fit']} runs that fitted were predicted "
                     "not to")
    return "\n".join(lines)


def _refusals(found: EvaluationReport) -> str:
    if not found.refused:
        return ""
    lines = [f"{len(found.refused)} rows refused"]
    for kind, count in found.refused_by_kind.items():
        first = found.refused_examples[kind]
        lines.append(f"  {count:>5}  {kind}: for example {first['id']}: {first['why']}"[:160])
    return "\n".join(lines)


def _worst(found: EvaluationReport) -> str:
    rows = found.worst(WORST).to_dict("records")
    if not rows:
        return ""
    unit = UNITS.get(found.quantity, "s")
    lines = [f"{'worst rows':<30}{f'measured {unit}':>14}{f'predicted {unit}':>17}{'error':>10}"
             + ("  where the time goes" if _causes(rows[0]) else "")]
    lines += [f"  {str(row['id'])[:28]:<28}{row['measured']:>14.4g}{row['predicted']:>17.4g}"
              f"{_percent(row['error'], sign=True):>10}  {_causes(row)}".rstrip() for row in rows]
    return "\n".join(lines)


def _causes(row: Mapping[Any, Any]) -> str:
    """The largest parts of a predicted time, as shares of it."""
    parts = sorted(((row[name] / row["predicted"], NAMES[name]) for name in NAMES if name in row),
                   reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in parts[:EXPLAINED] if share >= 0.01)


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1f} %" if sign else f"{value:.1f} %"
