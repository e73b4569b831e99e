"""From an XGBoost booster to flat arrays, and the regressor that uses whichever is faster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bundle.format import refusal
from predictor.bundle.packing import decompressed, stripped
from predictor.lowering.tables import Floats
from predictor.spec.errors import InputError
from predictor.timing.forest import LEAF, Forest

if TYPE_CHECKING:
    from xgboost import Booster

ROWS_BY_FOREST: Final = 5_000
"""Up to here, walking arrays in NumPy beats importing XGBoost (0.5 s and more)."""
ROWS_COMPARED: Final = 64
LARGEST_DIFFERENCE: Final = 1e-4
"""Between both regressors: sums of float32 in another order differ by 1e-6 or so."""
OBJECTIVES: Final = frozenset({"reg:absoluteerror", "reg:squarederror", "reg:pseudohubererror"})
"""Those whose prediction is the plain sum of the leaves."""


class BoostedTrees:
    """A regressor of a bundle: the forest for few rows, XGBoost for many where it is installed.

    Both give the same within ``LARGEST_DIFFERENCE``, which the first use of XGBoost checks.
    """

    def __init__(self, forest: Forest, features: int, booster: bytes, booster_bytes: int) -> None:
        """Keep ``booster``, an xz file of ``booster_bytes`` bytes of UBJ, until it is needed."""
        self.forest = forest
        self._features = features
        self._compressed = booster
        self._size = booster_bytes
        self._loading = Lock()

    def predict(self, x: NDArray[np.float32]) -> Floats:
        """Return the sum of trees of every row of ``x`` (rows, features), shape (rows,).

        Raises
        ------
        InputError
            When the booster cannot be decompressed or loaded, or it says something else than the
            forest.
        """
        if len(x) <= ROWS_BY_FOREST:
            return self.forest.predict(x)
        with self._loading:  # one of several threads; the others wait for it
            booster = self._booster
        if booster is None:
            return self.forest.predict(x)
        few = slice(ROWS_COMPARED)
        answer = _predict(booster, x)
        apart = np.abs(self.forest.predict(x[few]) - answer[few]).max()
        if not apart <= LARGEST_DIFFERENCE:
            raise _unlike(f"the booster and the flat trees differ by {apart:.2g}")
        return answer

    @cached_property
    def _booster(self) -> Booster | None:
        """The booster from the bytes that were checked; None without XGBoost or liblzma."""
        try:
            import lzma  # noqa: F401 (some builds of Python lack it)

            import xgboost
        except ImportError:
            return None
        content = decompressed(self._compressed, self._size)
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(content))
        except xgboost.core.XGBoostError as error:
            raise _unlike("XGBoost cannot read it: " + str(error).splitlines()[-1]) from None
        if booster.num_features() != self._features:
            raise _unlike(f"the booster has {booster.num_features()} features, not "
                          f"{self._features}")
        booster.set_param({"nthread": 1})  # callers run parts of a table beside each other
        return booster


def _predict(booster: Booster, x: NDArray[np.float32]) -> Floats:
    rows = np.ascontiguousarray(x, dtype=np.float32)
    return np.asarray(booster.inplace_predict(rows, validate_features=False), dtype=np.float64)


def _unlike(message: str) -> InputError:
    return refusal("booster", message)


def slim(booster: Booster) -> Booster:
    """Return a copy of a trained booster for a bundle: rounded leaves and no statistics.

    Raises
    ------
    InputError
        When the booster is no plain sum of numerical regression trees with one output.
    """
    import xgboost

    model = json.loads(booster.save_raw("json"))
    _check_plain(model["learner"])
    copy = xgboost.Booster()
    copy.load_model(bytearray(json.dumps(stripped(model)).encode("ascii")))
    return copy


def forest_of(booster: Booster) -> Forest:
    """Return the trees of a trained booster as flat arrays.

    Nodes are numbered breadth first, so children come after parents; nodes that pruning left
    behind are dropped. The layout read is XGBoost's JSON model schema (doc/model.schema).

    Raises
    ------
    InputError
        When the booster is no plain sum of numerical regression trees with one output.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    _check_plain(learner)
    trees = [_tree(tree) for tree in learner["gradient_booster"]["model"]["trees"]]
    sizes = np.array([len(tree["feature"]) for tree in trees], dtype=np.int64)
    root = np.concatenate(([0], np.cumsum(sizes)[:-1])) if trees else np.zeros(0)

    def joined(name: str, dtype: type) -> Any:
        parts = [tree[name] for tree in trees]
        return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)

    def shifted(name: str) -> Any:
        child = joined(name, np.int64)
        return np.where(child == LEAF, LEAF, child + np.repeat(root, sizes)).astype(np.int32)

    return Forest(root=root.astype(np.int32), feature=joined("feature", np.int32),
                  threshold=joined("threshold", np.float32), left=shifted("left"),
                  right=shifted("right"), missing_left=joined("missing_left", np.bool_),
                  value=joined("value", np.float32), base=_base(learner))


def _check_plain(learner: Mapping[str, Any]) -> None:
    shape, trees = learner["learner_model_param"], learner["gradient_booster"]
    objective = learner["objective"]["name"]
    wrong = []
    if trees["name"] != "gbtree":
        wrong.append(f"its trees are added as {trees['name']}")
    if objective not in OBJECTIVES:
        wrong.append(f"its objective is {objective}")
    if int(shape["num_target"]) != 1 or int(shape["num_class"]) > 1:
        wrong.append("it has several outputs")
    if any(any(tree["split_type"]) for tree in trees.get("model", {}).get("trees", ())):
        wrong.append("it splits on categories")
    if wrong:
        raise InputError.of("bundle-booster", "the booster is no plain sum of trees: "
                            + ", ".join(wrong),
                            "train gbtree with one of " + ", ".join(sorted(OBJECTIVES)))


def _base(learner: Mapping[str, Any]) -> float:
    """Return what the sum starts from: a number, written as an array since XGBoost 3.1."""
    return float(np.float32(str(learner["learner_model_param"]["base_score"]).strip("[]")))


def _tree(tree: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return one tree's arrays, numbered breadth first from its root, node 0."""
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    order, level = [], np.zeros(1, dtype=np.int64)
    while len(level):
        order.append(level)
        inner = level[left[level] != LEAF]
        level = np.stack((left[inner], right[inner]), axis=1).ravel()
    old = np.concatenate(order)
    new = np.full(len(left), LEAF)
    new[old] = np.arange(len(old))
    leaf = left[old] == LEAF
    # A leaf keeps its value where an inner node keeps its threshold.
    number = np.array(tree["split_conditions"], dtype=np.float64)[old].astype(np.float32)
    return {"feature": np.where(leaf, LEAF, np.array(tree["split_indices"])[old]),
            "threshold": np.where(leaf, 0, number), "value": np.where(leaf, number, 0),
            "left": np.where(leaf, LEAF, new[left[old]]),
            "right": np.where(leaf, LEAF, new[right[old]]),
            "missing_left": ~leaf & np.array(tree["default_left"], dtype=np.bool_)[old]}
