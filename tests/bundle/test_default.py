"""The bundle that ships: small, whole, and learned from nothing that it may not learn from."""

import re
from pathlib import Path

import pytest

from predictor.bundle import open_bundle
from predictor.catalog.data import model_folder
from predictor.timing.features import FEATURES
from predictor.training.sources import PERMISSIVE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle():
    return open_bundle(model_folder())


def test_it_holds_every_model(bundle) -> None:
    assert set(bundle.models) == {*FEATURES, "collectives"}
    for name, columns in FEATURES.items():
        assert bundle.models[name].features == columns


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in model_folder().iterdir()) <= 6_000_000


def test_every_source_has_a_permissive_licence(bundle) -> None:
    for source in bundle.manifest.sources:
        assert set(source.licence.split(" AND ")) <= PERMISSIVE, source


def test_notice_names_exactly_the_sources_it_learned_from(bundle) -> None:
    listed = (ROOT / "NOTICE").read_text(encoding="utf-8").split("default predictor", 1)[1]
    named = {(line.split()[0].rstrip(","), re.split(r"\s{2,}", line.strip())[-1])
             for line in listed.splitlines() if line.startswith("  ")}
    assert named == {(source.name, source.licence) for source in bundle.manifest.sources}
