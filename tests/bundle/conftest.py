"""A small bundle with really trained boosters, and ways to harm it."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from predictor.bundle import TrainedModel, TrainingManifest, TrainingSource, write_bundle
from predictor.bundle.digest import canonical_json, manifest_digest, sha256_of

xgboost = pytest.importorskip("xgboost", reason="xgboost: boosters are trained here")

FEATURES = ("log2 m", "log2 n", "log2 k", "share of peak")
SOURCE = TrainingSource(name="kernels", source="made up here", licence="Apache-2.0", rows=800,
                        sha256="0" * 64)


def rows(count: int, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed)
    x = made.normal(size=(count, len(FEATURES))).astype(np.float32)
    x[made.random(x.shape) < 0.05] = np.nan
    return x


def train(rounds: int = 40, **params) -> xgboost.Booster:
    x = rows(800)
    filled = np.nan_to_num(x)
    y = filled[:, 0] + np.sin(3 * filled[:, 1]) + 0.2 * filled[:, 2] * filled[:, 3]
    settings = {"objective": "reg:absoluteerror", "max_depth": 6, "tree_method": "hist",
                "nthread": 1} | params
    return xgboost.train(settings, xgboost.DMatrix(x, label=y), rounds)


@pytest.fixture(scope="session")
def trained():
    """Train a booster: trained(rounds, **params)."""
    return train


@pytest.fixture(scope="session")
def features():
    """Make rows of features with gaps: features(count, seed)."""
    return rows


@pytest.fixture(scope="session")
def model() -> TrainedModel:
    return TrainedModel(
        name="gemm", features=FEATURES, units=("1",) * 4, booster=train(),
        low=np.full(4, -4.0), high=np.full(4, 4.0), groups=("gemm/fwd/bf16", "gemm/bwd/bf16"),
        centre=np.array([0.25, -0.5]), levels=np.array([0.5, 0.9]),
        widths=np.array([[[0.1, 0.2], [0.3, 0.5]], [[0.2, 0.4], [np.nan, np.nan]]]),
        params={"max_depth": 6, "monotone_constraints": [0, 0, 1, 0]}, n_rows=800,
        device_columns=("share of peak",), devices=np.array([[0.5], [np.nan]], np.float32))


@pytest.fixture(scope="session")
def models(model) -> list[TrainedModel]:
    second = train(10, monotone_constraints=(1, 0, 0, -1), objective="reg:squarederror")
    return [model, dataclasses.replace(model, name="attention", booster=second)]


@pytest.fixture(scope="session")
def manifest() -> TrainingManifest:
    return TrainingManifest(name="predict-time-kernels", created="2026-01-02T03:04:05+00:00",
                            sources=(SOURCE,))


@pytest.fixture
def written(tmp_path, models, manifest) -> Path:
    """Folder of a good bundle, this test's own."""
    write_bundle(tmp_path / "bundle", models, manifest)
    return tmp_path / "bundle"


def declared(content: bytes) -> int:
    """Bytes that an archive says it unpacks to; anything else is as long as it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile:
        return len(content)


@pytest.fixture(scope="session")
def reseal():
    """Change a bundle as somebody would who knows its digests: reseal(folder, change, files)."""
    def apply(folder: Path, change=lambda fields: None, files: dict[str, bytes] | None = None):
        fields = json.loads((folder / "manifest.json").read_bytes())
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
            fields["files"][name] = sha256_of(content)
            fields["unpacked_bytes"][name] = declared(content)
        change(fields)
        fields["digest"] = manifest_digest(fields)
        (folder / "manifest.json").write_bytes(canonical_json(fields))
    return apply
