"""Campaign files: what to measure, as grids in YAML, and the plan of points that follows."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from predictor.profiling.point import Cell, Kind, Point, Row
from predictor.spec.errors import InputError, Problem
from predictor.spec.yaml_loader import Loader

SECTIONS = {"kernels": Kind.KERNEL, "layers": Kind.LAYER, "collectives": Kind.COLLECTIVE,
            "steps": Kind.STEP}
"""Lists of grids in a campaign file, and what each measures."""
GRID_KEYS = ("ranks", "launches", "sample", "shapes")
"""Keys of a grid that are no cells of its points."""
MOST_POINTS = 200_000
"""Of one grid; a slip in a list would otherwise fill the memory."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign file that was checked."""

    name: str
    gpu: str
    """Name in the catalogue of what is measured; ``auto`` when the worker is to find out."""
    device: str = "cuda"
    system: str = ""
    """What the measured machine is called in the tables of collectives; the name by default."""
    threads: int = 1
    """Threads of each process for the operators of a CPU."""
    ranks_per_node: int = 0
    """Processes on one node; 0 when all are on one."""
    intra_link: str = ""
    inter_link: str = ""
    nic_gbps_per_gpu: float = math.nan
    precision: float = 0.02
    """Half-width of the median's interval, as a share, at which a timing is good enough."""
    most_seconds: float = 2.0
    """Longest time spent on repeating one call."""
    timeout_seconds: float = 120.0
    """Of a point; a step of several processes may need minutes to start."""
    seed: int = 0
    grids: tuple[Grid, ...] = ()
    text: str = ""
    """The file, word for word."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of some cells."""

    kind: Kind
    cells: Mapping[str, tuple[Cell, ...]]
    shapes: tuple[Row, ...] = ({},)
    """Cells that belong together; each is combined with all of ``cells``."""
    ranks: tuple[int, ...] = (1,)
    launches: int = 1
    sample: int = 0
    """Draw so many of the combinations; 0 takes all."""

    def __len__(self) -> int:
        combinations = math.prod(len(values) for values in self.cells.values())
        return combinations * len(self.shapes) * len(self.ranks)

    def specs(self) -> Iterator[tuple[int, dict[str, Cell]]]:
        """Yield the number of ranks and the cells of each combination."""
        for ranks, shape, values in itertools.product(
                self.ranks, self.shapes, itertools.product(*self.cells.values())):
            yield ranks, {**dict(zip(self.cells, values, strict=True)), **shape}


def read_campaign(path: Path) -> Campaign:
    """Return the campaign in a YAML file.

    Raises
    ------
    InputError
        When the file cannot be read or is no YAML, and listing every unknown key, cell out of
        range and unknown operator otherwise.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise InputError.of("campaign-file", f"cannot read {path}: {reason}",
                            "give a campaign file, as those in profiling/") from None
    return parse_campaign(text)


def parse_campaign(text: str) -> Campaign:
    """Return the campaign that a YAML text describes; see :func:`read_campaign`."""
    try:
        given = yaml.load(text, Loader)  # noqa: S506 - a stricter SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError.of("campaign-yaml", f"the campaign is no YAML: {reason}",
                            "correct the file") from None
    if not isinstance(given, dict):
        raise InputError.of("campaign-keys", "a campaign is a mapping",
                            "start with name:, gpu: and a list under kernels:")
    return _campaign(given, text)


def plan(campaign: Campaign) -> tuple[Point, ...]:
    """Return the points of a campaign, in the order in which they are measured, each once.

    Points of one kind and number of ranks follow each other, so that few processes measure them;
    steps come last, one launch of all of them after the other, so that a slow hour of the machine
    does not fall on one strategy.
    """
    points = [Point(grid.kind, spec, ranks, launch, campaign.timeout_seconds)
              for position, grid in enumerate(campaign.grids)
              for ranks, spec in _drawn(grid, campaign.seed, position)
              for launch in range(grid.launches)]
    order = list(SECTIONS.values())
    points.sort(key=lambda point: (order.index(point.kind), point.launch, point.ranks
                                   if point.kind is not Kind.STEP else 0))
    return tuple({point.key: point for point in points}.values())


def _drawn(grid: Grid, seed: int, position: int) -> Sequence[tuple[int, dict[str, Cell]]]:
    """Return the grid's combinations, or the draw of them: by digest, so equal on any machine."""
    specs = list(grid.specs())
    if not 0 < grid.sample < len(specs):
        return specs

    def lot(index: int) -> bytes:
        return hashlib.sha256(f"{seed}/{position}/{index}".encode()).digest()

    return [specs[index] for index in sorted(sorted(range(len(specs)), key=lot)[:grid.sample])]


def _campaign(given: Mapping[Any, Any], text: str) -> Campaign:
    settings = [field for field in fields(Campaign) if field.name not in ("grids", "text")]
    known = [field.name for field in settings] + list(SECTIONS)
    problems = [_unknown(str(key), known, "") for key in given if key not in known]
    values: dict[str, Any] = {}
    for field in settings:
        if field.name in given:
            values[field.name] = given[field.name]
            problems += _setting_problems(field.name, given[field.name])
        elif field.name in ("name", "gpu"):
            problems.append(Problem("campaign-keys", f"the campaign has no {field.name}",
                                    "add it", field.name))
    grids: list[Grid] = []
    for section, kind in SECTIONS.items():
        for index, one in enumerate(_list(given.get(section, []), section, problems)):
            grid = _grid(kind, one, f"{section}[{index}]", problems)
            grids += [grid] if grid else []
    if not grids and not problems:
        problems.append(Problem("campaign-empty", "the campaign measures nothing",
                                f"add a list under {', '.join(SECTIONS)}"))
    if problems:
        raise InputError(problems)
    return Campaign(**values, grids=tuple(grids), text=text)


_AT_LEAST = {"threads": 1, "ranks_per_node": 0, "seed": 0}


def _setting_problems(name: str, value: Any) -> list[Problem]:
    if name in _AT_LEAST:
        good, rule = _whole(value, _AT_LEAST[name]), f"a whole number from {_AT_LEAST[name]}"
    elif name in ("precision", "most_seconds", "timeout_seconds", "nic_gbps_per_gpu"):
        good = isinstance(value, int | float) and not isinstance(value, bool) \
            and 0 < value < math.inf
        rule = "a number above 0"
    elif name == "device":
        good, rule = value in ("cpu", "cuda"), "cpu or cuda"
    else:
        good, rule = isinstance(value, str) and bool(value.strip()), "text"
    return [] if good else [Problem("campaign-setting", f"{name} is {rule} and got {value!r}",
                                    "correct it", name)]


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _unknown(key: str, known: Sequence[str], where: str) -> Problem:
    near = difflib.get_close_matches(key, known, 1)
    remedy = f"did you mean {near[0]}?" if near else "choose from " + ", ".join(known)
    return Problem("campaign-keys", f"there is no key {key!r}", remedy, where or key)


def _list(value: Any, where: str, problems: list[Problem]) -> list[Any]:
    if isinstance(value, list):
        return value
    problems.append(Problem("campaign-grid", f"{where} is a list of grids", "start each with -",
                            where))
    return []


def _grid(kind: Kind, given: Any, where: str, problems: list[Problem]) -> Grid | None:
    """Return one grid; what is wrong with it is added to ``problems``."""
    if not isinstance(given, dict) or not given:
        problems.append(Problem("campaign-grid", f"{where} is no mapping of cells",
                                "give cell: value or cell: [value, ...]", where))
        return None
    found: list[Problem] = []
    cells = {str(key): _values(value, f"{where}.{key}", found)
             for key, value in given.items() if key not in GRID_KEYS}
    shapes = _shapes(given.get("shapes", [{}]), f"{where}.shapes", found)
    ranks = _values(given.get("ranks", 1), f"{where}.ranks", found)
    numbers = {"launches": given.get("launches", 1), "sample": given.get("sample", 0)}
    found += [Problem("campaign-grid", f"{name} is a whole number and got {value!r}", "correct it",
                      f"{where}.{name}")
              for name, value in numbers.items() if not _whole(value, int(name == "launches"))]
    found += [Problem("campaign-grid", f"ranks are whole numbers from 1 and got {one!r}",
                      "correct them", f"{where}.ranks") for one in ranks if not _whole(one, 1)]
    if not found:
        grid = Grid(kind, cells, shapes, tuple(map(int, ranks)),  # type: ignore[arg-type]
                    **numbers)
        found = _cell_problems(grid, where)
    problems += found
    return grid if not found else None


def _cell_problems(grid: Grid, where: str) -> list[Problem]:
    """Return what is wrong with the combinations, each problem once."""
    if len(grid) > MOST_POINTS:
        return [Problem("campaign-size", f"{where} has {len(grid):,} combinations and at most "
                        f"{MOST_POINTS:,} are planned", "shorten its lists", where)]
    check = _checks()[grid.kind]
    found = {str(one): one for ranks, spec in grid.specs() for one in check(spec, ranks)}
    return [Problem(one.rule, one.message, one.remedy, f"{where}.{one.where}".rstrip("."))
            for one in itertools.islice(found.values(), 20)]


def _checks() -> Mapping[Kind, Callable[[Row, int], Sequence[Problem]]]:
    from predictor.profiling import collectives, layers, steps
    from predictor.profiling.operators.registry import problems_of

    return {Kind.KERNEL: lambda spec, _: problems_of(spec),
            Kind.LAYER: layers.problems_of,
            Kind.COLLECTIVE: collectives.problems_of, Kind.STEP: steps.problems_of}


def _values(value: Any, where: str, problems: list[Problem]) -> tuple[Cell, ...]:
    """Return the values of a cell: one, a list, or ``{from, to, factor}``."""
    if isinstance(value, dict):
        return _range(value, where, problems)
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str | int | float | bool) for one in values):
        problems.append(Problem("campaign-grid", f"{where} holds no plain values: {value!r}",
                                "give a value, a list of them or {from, to, factor}", where))
        return ()
    return tuple(values)


def _range(given: Mapping[Any, Any], where: str, problems: list[Problem]) -> tuple[Cell, ...]:
    """Return the whole numbers from ``from`` to ``to``, each ``factor`` times the last."""
    first, last, factor = (given.get(name) for name in ("from", "to", "factor"))
    good = set(given) == {"from", "to", "factor"} \
        and all(isinstance(one, int | float) and one > 0 for one in (first, last, factor)) \
        and factor >= 1.01 and first <= last < 1e15  # type: ignore[operator]
    if not good:
        problems.append(Problem("campaign-grid", f"{where} is no range: {dict(given)!r}",
                                "give {from: 1024, to: 1048576, factor: 2}", where))
        return ()
    assert isinstance(first, int | float)
    count = int(math.log(last / first, factor) + 1e-9) + 1  # type: ignore[arg-type, operator]
    return tuple(dict.fromkeys(round(first * factor**step)  # type: ignore[operator]
                               for step in range(count)))


def _shapes(given: Any, where: str, problems: list[Problem]) -> tuple[Row, ...]:
    good = isinstance(given, list) and given and all(
        isinstance(one, dict) and all(isinstance(value, str | int | float | bool)
                                      for value in one.values()) for one in given)
    if not good:
        problems.append(Problem("campaign-grid", f"{where} is no list of mappings",
                                "give [{m: 1, n: 2}, ...]", where))
        return ({},)
    return tuple({str(key): value for key, value in one.items()} for one in given)
