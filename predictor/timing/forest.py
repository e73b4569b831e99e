"""Regression trees as flat arrays, walked by NumPy for all rows and all trees at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats
from predictor.spec.errors import InputError, Problem

Singles = NDArray[np.float32]
Indices = NDArray[np.int32]
Flags = NDArray[np.bool_]

LEAF: Final = -1
"""What ``feature``, ``left`` and ``right`` hold for a leaf."""
DEEPEST: Final = 64
"""Levels below a root. Trained trees have 6 to 12; a chain of a million would take hours."""
CELLS_PER_BLOCK: Final = 32_768
"""Row-tree pairs walked together: their work arrays stay in a core's cache."""
NODE_ARRAYS: Final = ("feature", "threshold", "left", "right", "missing_left", "value")
DTYPES: Final = {"root": np.dtype(np.int32), "feature": np.dtype(np.int32),
                 "threshold": np.dtype(np.float32), "left": np.dtype(np.int32),
                 "right": np.dtype(np.int32), "missing_left": np.dtype(np.bool_),
                 "value": np.dtype(np.float32)}


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """A sum of binary trees whose nodes lie one after the other.

    A row goes left where its feature is less than the threshold, and the missing way where the
    feature is NaN: XGBoost's rule (include/xgboost/tree_model.h, ``RegTree::GetNext``).

    Raises
    ------
    InputError
        When an array has another type, shape or length than stated, an index points outside, a
        child does not come after its parent (so that a walk could go round), a tree is deeper than
        ``DEEPEST``, or a number is not finite. All problems at once.
    """

    root: Indices
    """First node of each tree, shape (trees,)."""
    feature: Indices
    """Column that a node looks at, ``LEAF`` for leaves, shape (nodes,)."""
    threshold: Singles
    """What the feature is compared with, shape (nodes,); 0 for leaves."""
    left: Indices
    """Node where smaller values go, ``LEAF`` for leaves, shape (nodes,)."""
    right: Indices
    """Node where values from the threshold on go, ``LEAF`` for leaves, shape (nodes,)."""
    missing_left: Flags
    """Whether NaN goes left, shape (nodes,)."""
    value: Singles
    """What a leaf adds to the sum, shape (nodes,); 0 for inner nodes."""
    base: float
    """What the sum starts from."""
    depth: int = field(init=False)
    """Levels below the deepest root."""
    _next: NDArray[np.intp] = field(init=False, repr=False)
    """Left and right of node i at 2i and 2i + 1; leaves lead to themselves, shape (2 nodes,)."""
    _column: NDArray[np.intp] = field(init=False, repr=False)
    """``feature`` with leaves looking at column 0, shape (nodes,)."""

    def __post_init__(self) -> None:
        problems = _wrong_arrays(self) or _wrong_content(self)
        if problems:
            raise InputError(problems)
        leaf, own = self.feature == LEAF, np.arange(self.nodes)
        both = np.stack((np.where(leaf, own, self.left), np.where(leaf, own, self.right)), axis=1)
        object.__setattr__(self, "_next", np.ascontiguousarray(both, dtype=np.intp).ravel())
        object.__setattr__(self, "_column", np.where(leaf, 0, self.feature).astype(np.intp))
        object.__setattr__(self, "depth", _depth(self))

    @property
    def nodes(self) -> int:
        """Number of nodes of all trees together."""
        return len(self.feature)

    @property
    def width(self) -> int:
        """Number of columns that rows need at least."""
        return int(self.feature.max(initial=LEAF)) + 1

    def predict(self, x: Singles) -> Floats:
        """Return base plus the leaf that each row reaches in every tree, shape (rows,).

        Parameters
        ----------
        x:
            Features, shape (rows, features), float32 as in training: a value that equals a
            threshold must compare as it did there.

        Raises
        ------
        InputError
            When ``x`` is not two-dimensional or has fewer columns than the trees look at.
        """
        if x.ndim != 2 or x.shape[1] < self.width:
            raise _problem_error(f"rows of shape {x.shape} for trees on {self.width} features",
                                 "give one row of features per kernel")
        x = np.ascontiguousarray(x, dtype=np.float32)
        total = np.full(len(x), self.base)
        if not len(self.root) or not self.width:
            return np.asarray(total + self.value[self.root].sum(dtype=np.float64))
        block = max(1, CELLS_PER_BLOCK // len(self.root))
        for start in range(0, len(x), block):
            rows = slice(start, start + block)
            total[rows] += self._walk(x[rows])
        return total

    def _walk(self, x: Singles) -> Floats:
        """Return the sum of the leaves of a block of rows, shape (rows,)."""
        rows, columns = x.shape
        flat, missing = x.ravel(), bool(np.isnan(x).any())
        first = np.repeat(np.arange(rows) * columns, len(self.root))
        node = np.tile(self.root.astype(np.intp), rows)
        for _ in range(self.depth):
            seen = flat.take(first + self._column.take(node))
            right = ~(seen < self.threshold.take(node))
            if missing:
                right &= ~(np.isnan(seen) & self.missing_left.take(node))
            node = self._next.take(2 * node + right)
        leaves = self.value.take(node).reshape(rows, len(self.root))
        return np.asarray(leaves.sum(axis=1, dtype=np.float64))


def _wrong_arrays(forest: Forest) -> list[Problem]:
    """Name arrays of another type or shape; nothing else can be checked before."""
    nodes = len(forest.feature) if getattr(forest.feature, "ndim", 0) == 1 else -1
    problems = []
    for name, dtype in DTYPES.items():
        array = getattr(forest, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
            found = f"{getattr(array, 'dtype', type(array).__name__)} {np.shape(array)}"
            problems.append(_problem(f"{name} is {found}, not {dtype} in one dimension", name))
        elif name != "root" and nodes >= 0 and len(array) != nodes:
            problems.append(_problem(f"{name} has {len(array)} entries for {nodes} nodes", name))
    return problems


def _wrong_content(forest: Forest) -> list[Problem]:
    """Name numbers that are not finite and indices that a walk must not follow."""
    nodes, inner = len(forest.feature), np.flatnonzero(forest.feature != LEAF)
    found = [(name, f"{name} holds a number that is not finite")
             for name in ("threshold", "value") if not np.isfinite(getattr(forest, name)).all()]
    if not np.isfinite(forest.base):
        found.append(("base", f"base is {forest.base}"))
    if np.any((forest.root < 0) | (forest.root >= nodes)):
        found.append(("root", f"a root lies outside 0 to {nodes - 1}"))
    if np.any(forest.feature < LEAF):
        found.append(("feature", f"a feature is below {LEAF}"))
    for name in ("left", "right"):
        child = getattr(forest, name)
        if np.any((child[inner] <= inner) | (child[inner] >= nodes)):
            found.append((name, f"a {name} child does not come after its parent "
                                f"within {nodes} nodes"))
        if np.any(child[forest.feature == LEAF] != LEAF):
            found.append((name, f"a leaf has a {name} child"))
    return [_problem(message, where) for where, message in found]


def _depth(forest: Forest) -> int:
    """Return the levels below the deepest root; ``InputError`` above ``DEEPEST``."""
    level = forest.root
    for depth in range(DEEPEST + 1):
        level = level[forest.feature[level] != LEAF]
        if not len(level):
            return depth
        level = np.concatenate((forest.left[level], forest.right[level]))
        if len(level) > forest.nodes:  # parents share children, which would double each level
            level = np.unique(level)
    raise _problem_error(f"a tree has more than {DEEPEST} levels", "train shallower trees")


def _problem(message: str, where: str) -> Problem:
    return Problem("forest-arrays", message, "train the model again", where)


def _problem_error(message: str, remedy: str) -> InputError:
    return InputError.of("forest-arrays", message, remedy)
