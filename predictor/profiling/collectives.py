"""Collectives over groups of ranks: one or several at once, alone or beside a product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from predictor.profiling.measure import Place
from predictor.profiling.point import Cell, Point, Row, UnsupportedError
from predictor.profiling.ranks import mean_of
from predictor.profiling.shape import DTYPES, word_or_count
from predictor.profiling.timers import time_call
from predictor.spec.errors import Problem

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast")
"""Named and sized as by nccl-tests; ``sendrecv`` is a ring of messages."""
CELLS = ("collective", "dtype", "bytes", "group", "stride", "groups", "beside")
BESIDE = ("m", "n", "k")
"""Sizes of the product that runs beside the collective when ``beside`` is ``linear``."""
_WORDS = {"collective": COLLECTIVES, "dtype": DTYPES, "beside": ("linear",)}


@dataclass(frozen=True, slots=True)
class Layout:
    """Which ranks communicate: groups of ``size`` ranks, ``stride`` apart, ``count`` at once."""

    size: int
    stride: int = 1
    count: int = 1

    def groups(self, world: int) -> list[list[int]]:
        """Return the ranks of each group that communicates."""
        block = self.size * self.stride
        every = [[start + inner + step * self.stride for step in range(self.size)]
                 for start in range(0, world - block + 1, block) for inner in range(self.stride)]
        return every[:self.count]

    @classmethod
    def of(cls, spec: Row, ranks: int) -> Layout:
        """Return the layout in a specification that was checked."""
        return cls(int(spec.get("group", ranks) or ranks), int(spec.get("stride", 1) or 1),
                   int(spec.get("groups", 1) or 1))


def problems_of(spec: Row, ranks: int) -> list[Problem]:
    """Return everything that is wrong with the cells of a collective's point."""
    known = CELLS + (BESIDE if "beside" in spec else ())
    found = [Problem("collective-cells", f"a collective has no {name}",
                     f"give {', '.join(known)}", name) for name in sorted(set(spec) - set(known))]
    needed = ("collective", "dtype", "bytes") + (BESIDE if "beside" in spec else ())
    found += [Problem("collective-cells", f"there is no {name}", "add it", name)
              for name in needed if name not in spec]
    for name in (name for name in known if name in spec):
        found += word_or_count(name, spec[name], _WORDS)
        if spec[name] == 0:
            found.append(Problem("collective-cells", f"{name} is above 0", "correct it", name))
    if found:
        return found
    layout = Layout.of(spec, ranks)
    if ranks < 2 or layout.size < 2 or len(layout.groups(ranks)) < layout.count:
        found.append(Problem(
            "collective-ranks", f"{layout.count} groups of {layout.size} ranks with stride "
            f"{layout.stride} do not fit into {ranks} ranks", "raise ranks: or lower the groups",
            "ranks"))
    return found


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Return a row of ``collectives``, or of ``overlaps`` when a product runs beside it."""
    import torch.distributed as dist

    layout = Layout.of(point.spec, place.ranks)
    own, active = _process_groups(layout, place.ranks)
    rows: Sequence[Row] = ()
    if own is not None:
        start = _collective(point.spec, own, place)
        agree = mean_of(place, active)
        cells = _cells(point.spec, layout, place)
        if "beside" in point.spec:
            rows = [_overlap(point.spec, cells, start, place, agree)]
        else:
            timing = time_call(lambda: _finish(start()), place, agree=agree)
            rows = [{"table": "collectives", **cells, "timing_kind": timing.timing_kind,
                     "time_us": timing.seconds * 1e6, **timing.cells()}]
    dist.barrier()
    return rows


@lru_cache(maxsize=64)
def _process_groups(layout: Layout, world: int) -> tuple[Any, Any]:
    """Return this rank's group and that of all ranks that communicate; None twice for the idle.

    Every rank makes every group, in the same order.
    """
    import torch.distributed as dist

    rank, own = dist.get_rank(), None
    groups = layout.groups(world)
    for ranks in groups:
        made = dist.new_group(ranks)
        own = made if rank in ranks else own
    active = dist.new_group(sorted(itertools.chain.from_iterable(groups)))
    return (own, active) if own is not None else (None, None)


def _collective(spec: Row, group: Any, place: Place) -> Callable[[], Any]:
    """Return what starts the collective and returns its handles."""
    import torch
    import torch.distributed as dist

    from predictor.profiling.operators.registry import torch_dtype

    dtype = torch_dtype(str(spec["dtype"]))
    size = dist.get_world_size(group)
    count = max(1, int(spec["bytes"]) // dtype.itemsize)  # type: ignore[arg-type]
    whole = -(-count // size) * size
    large = torch.zeros(whole, dtype=dtype, device=place.device)
    small = torch.zeros(whole // size, dtype=dtype, device=place.device)
    other = torch.zeros_like(large)
    starts: Mapping[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(large, group=group, async_op=True),
        "all_gather": lambda: dist.all_gather_into_tensor(large, small, group, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(small, large, group=group,
                                                             async_op=True),
        "alltoall": lambda: dist.all_to_all_single(other, large, group=group, async_op=True),
        "broadcast": lambda: dist.broadcast(large, group=group, group_src=0, async_op=True),
        "sendrecv": lambda: _ring(large, other, group)}
    start = starts[str(spec["collective"])]
    try:
        _finish(start())
    except RuntimeError as error:
        if "support" not in str(error) and "not implemented" not in str(error).lower():
            raise
        raise UnsupportedError(f"{place.backend} has no {spec['collective']} of {dtype}") from error
    return start


def _ring(out: Any, into: Any, group: Any) -> Any:
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return dist.batch_isend_irecv([
        dist.P2POp(dist.isend, out, group=group, group_peer=(rank + 1) % size),
        dist.P2POp(dist.irecv, into, group=group, group_peer=(rank - 1) % size)])


def _finish(handles: Any) -> None:
    for handle in handles if isinstance(handles, list) else [handles]:
        handle.wait()


def _cells(spec: Row, layout: Layout, place: Place) -> dict[str, Cell]:
    first = layout.groups(place.ranks)[0]
    nodes = len({rank // place.ranks_per_node for rank in first})
    return {
        "source": "campaign", "licence": "Apache-2.0", "system": place.system, "gpu": place.gpu,
        "gpus_per_node": layout.size / nodes, "nodes": nodes, "world_size": layout.size,
        "intra_link": place.intra_link, "inter_link": place.inter_link,
        "nic_gbps_per_gpu": place.nic_gbps_per_gpu, "library": place.backend,
        "collective": spec["collective"], "dtype": spec["dtype"], "bytes": spec["bytes"],
        "stride": layout.stride, "groups": layout.count}


def _overlap(spec: Row, cells: Row, start: Callable[[], Any], place: Place,
             agree: Callable[[float], float] | None) -> Row:
    """Time a collective and about as long a run of products, apart and together."""
    import torch

    from predictor.profiling.operators.registry import torch_dtype

    m, n, k = (int(spec[name]) for name in BESIDE)  # type: ignore[arg-type]
    dtype = torch_dtype(str(spec["dtype"]))
    x = torch.randn(m, k, dtype=dtype, device=place.device)
    weight = torch.randn(n, k, dtype=dtype, device=place.device)
    out = torch.empty(m, n, dtype=dtype, device=place.device)
    collective = time_call(lambda: _finish(start()), place, agree=agree).seconds
    one = time_call(lambda: torch.mm(x, weight.t(), out=out), place, agree=agree).seconds
    products = max(1, round(collective / one))

    def compute() -> None:
        for _ in range(products):
            torch.mm(x, weight.t(), out=out)

    def both() -> None:
        handles = start()
        compute()
        _finish(handles)

    alone = time_call(compute, place, agree=agree)
    together = time_call(both, place, agree=agree)
    return {"table": "overlaps", **cells, "m": m, "n": n, "k": k, "products": products,
            "collective_alone_s": collective, "compute_alone_s": alone.seconds,
            "together_s": together.seconds, "timing_kind": together.timing_kind,
            "collective_slowdown": together.seconds / collective,
            "compute_slowdown": together.seconds / alone.seconds, **together.cells()}
