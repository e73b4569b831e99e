"""Zero-bubble schedules: weight gradients fill what would be bubbles (Qi et al., 2401.10241)."""

from __future__ import annotations

from predictor.pipeline.orders import Action, Order, Work


def zb_h1(pp: int, vpp: int, num_microbatches: int) -> Order:
    """1F1B whose weight gradients wait until the rank would idle; memory of 1F1B (section 2.2)."""
    return _handcrafted(pp, num_microbatches, extra=0)


def zb_2p(pp: int, vpp: int, num_microbatches: int) -> Order:
    """Twice the warm-up of 1F1B: no bubble when F = B = W (section 2.2, ZB-H2)."""
    return _handcrafted(pp, num_microbatches, extra=1)


def _handcrafted(pp: int, m: int, extra: int) -> Order:
    """List-schedule one unit of time after another: B first, then F within the memory, then W."""
    limit = [(pp - rank) if not extra else min(2 * pp - 1, 2 * (pp - rank) - 1)
             for rank in range(pp)]
    done: dict[tuple[Work, int, int], int] = {}
    counts = [{work: 0 for work in Work} for _ in range(pp)]
    order: list[list[Action]] = [[] for _ in range(pp)]
    clock = 0
    while any(counts[rank][Work.W] < m for rank in range(pp)):
        for rank in range(pp):
            work = _choose(rank, pp, m, clock, limit[rank], counts[rank], done)
            if work is not None:
                order[rank].append(Action(work, 0, counts[rank][work]))
                done[(work, rank, counts[rank][work])] = clock + 1
                counts[rank][work] += 1
        clock += 1
    return tuple(tuple(actions) for actions in order)


def _choose(rank: int, pp: int, m: int, clock: int, limit: int, counts: dict[Work, int],
            done: dict[tuple[Work, int, int], int]) -> Work | None:
    f, b, w = counts[Work.F], counts[Work.B], counts[Work.W]

    def ready(work: Work, at: int, microbatch: int) -> bool:
        return done.get((work, at, microbatch), clock + 1) <= clock

    if b < f and (ready(Work.F, rank, b) if rank == pp - 1 else ready(Work.B, rank + 1, b)):
        return Work.B
    if f < m and f - w < limit and (rank == 0 or ready(Work.F, rank - 1, f)):
        return Work.F
    return Work.W if w < b else None
