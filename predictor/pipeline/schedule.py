"""What a schedule is: for each pipeline rank, the actions of one step in sequence.

An order is an array of shape (ranks, actions, 3) with columns work, chunk, micro-batch. Every rank
runs as many actions as the others. Chunk ``k`` of rank ``r`` is global stage ``k x pp + r``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from predictor.spec.errors import InputError

Order = NDArray[np.int64]


class Work(IntEnum):
    """What an action does."""

    F = 0
    """Forward."""
    B = 1
    """Backward: input gradients, and weight gradients where the schedule does not split them."""
    W = 2
    """Weight gradients, in zero-bubble schedules."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as data. All of them flush: a step ends when every micro-batch has gone back."""

    name: str
    summary: str
    """One sentence for people."""
    source: str
    """Where it is described."""
    build: Callable[[int, int, int, int], Order]
    """Makes the order from pp, vpp, micro-batches and the group size that :attr:`group` names."""
    group: Callable[[int, int], int]
    """Returns, from pp and micro-batches, how many micro-batches form a round. In the middle of a
    step, rounds follow each other in the same pattern."""
    any_round: bool = False
    """Whether any other number of micro-batches is a round as well."""
    splits_weight: bool = False
    """Whether weight gradients are actions of their own."""

    def __call__(self, pp: int, vpp: int, num_microbatches: int) -> Order:
        """Return the order of ``num_microbatches`` through ``pp`` ranks of ``vpp`` chunks."""
        return self.build(pp, vpp, num_microbatches, self.group(pp, num_microbatches))


def shortened(num_microbatches: int, group: int, rounds: int) -> int:
    """Return the micro-batches of a step that is whole rounds of ``group`` shorter, with at least
    ``rounds`` of them left.
    """
    return num_microbatches - group * max(0, num_microbatches // group - rounds)


def pp_at_a_time(pp: int, num_microbatches: int) -> int:
    """Return the usual round: as many micro-batches as ranks, so that one round trip through the
    pipeline is a whole number of rounds.
    """
    return pp


def one_chunk(vpp: int) -> None:
    """Raise InputError when a schedule that runs one chunk per rank is given more."""
    if vpp > 1:
        raise InputError.of("one-chunk", f"this schedule runs one chunk per rank, not {vpp}",
                            "set vpp to 1 or choose interleaved-1f1b", "strategy.vpp")


def passes(group: int, vpp: int, num_microbatches: int) -> tuple[Order, Order]:
    """Return all forwards and all backwards of one rank in sequence, each of shape (actions, 3).

    Chunks take turns in groups of ``group`` micro-batches.
    """
    microbatch = np.repeat(np.arange(num_microbatches), vpp)
    chunk = np.tile(np.arange(vpp), num_microbatches)
    sequence = np.lexsort((microbatch, chunk, microbatch // group))
    forward = np.column_stack(
        [np.full(len(chunk), Work.F), chunk, microbatch])[sequence].astype(np.int64)
    backward = forward.copy()
    backward[:, 0] = Work.B
    backward[:, 1] = vpp - 1 - forward[:, 1]
    return forward, backward


def woven(forward: Order, backward: Order, warm_up: int, *, weight_lag: int | None = None) -> Order:
    """Return ``warm_up`` forwards, then forwards and backwards in turn, then what is left.

    With ``weight_lag``, a weight gradient follows each backward from that one on; those that
    remain come last.
    """
    step = len(Work) * np.arange(len(forward))
    ahead = len(Work) * warm_up
    pieces, keys = [forward, backward], [step, step + ahead + 1]
    # The i-th backward follows the (i + warm_up)-th forward, counted from 0.
    if weight_lag is not None:
        weight = backward.copy()
        weight[:, 0] = Work.W
        pieces.append(weight)
        keys.append(step + ahead + len(Work) * weight_lag + 2)
    order: Order = np.concatenate(pieces)[np.argsort(np.concatenate(keys), kind="stable")]
    return order
