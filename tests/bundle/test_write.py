"""A bundle is written whole, the same each time, and read back as it was."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import zipfile

import numpy as np
import pytest

from predictor.bundle import copy_bundle, open_bundle, write_bundle
from predictor.bundle.packing import LEAF_STEP
from predictor.bundle.trees import ROWS_BY_FOREST, forest_of
from predictor.spec.errors import InputError

ROUNDING = 40 * LEAF_STEP / 2  # of all trees, at worst


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_trained_is_what_opens(written, model, manifest, features):
    bundle = open_bundle(written)
    assert list(bundle.models) == ["gemm", "attention"]
    assert bundle.manifest.sources == manifest.sources
    assert bundle.manifest.models[0].params == model.params
    gemm = bundle.models["gemm"]
    for name in ("features", "groups", "device_columns"):
        assert getattr(gemm, name) == getattr(model, name)
    for name in ("low", "high", "centre", "levels", "widths", "devices"):
        np.testing.assert_array_equal(getattr(gemm, name), getattr(model, name))
    for rows in (200, ROWS_BY_FOREST + 1):
        x = features(rows, seed=9)
        np.testing.assert_allclose(gemm.regressor.predict(x), model.booster.inplace_predict(x),
                                   atol=ROUNDING)


def test_arrays_and_booster_are_of_the_same_trees(written, features):
    """Both come from the rounded booster, so many rows get what few get."""
    trees = open_bundle(written).models["gemm"].regressor
    x = features(ROWS_BY_FOREST + 1, seed=9)
    np.testing.assert_allclose(trees.predict(x), trees.forest.predict(x), rtol=0, atol=1e-5)


def test_rounding_moves_a_sum_of_150_trees_by_less_than_2e_3(
        tmp_path, trained, features, model, manifest):
    booster = trained(150, learning_rate=0.1)
    bundle = write_bundle(tmp_path / "bundle", [dataclasses.replace(model, booster=booster)],
                          manifest)
    x = features(ROWS_BY_FOREST + 1, seed=9)
    apart = np.abs(bundle.models["gemm"].regressor.predict(x) - booster.inplace_predict(x))
    assert 0 < apart.max() < 2e-3


def test_the_booster_that_was_given_is_not_rounded(tmp_path, trained, model, manifest):
    booster = trained(5)
    before = booster.save_raw("json")
    write_bundle(tmp_path / "bundle", [dataclasses.replace(model, booster=booster)], manifest)
    assert booster.save_raw("json") == before


def test_a_node_takes_few_bytes(tmp_path, trained, model, manifest):
    """The bundle in the package has 400,000 nodes and 6 MB."""
    booster = trained(150, max_depth=8)
    write_bundle(tmp_path / "bundle", [dataclasses.replace(model, booster=booster)], manifest)
    files = contents(tmp_path / "bundle")
    nodes = len(forest_of(booster).feature)
    assert nodes > 15_000
    assert len(files["gemm.npz"]) < 5 * nodes and len(files["gemm.ubj.xz"]) < 8 * nodes


def test_the_manifest_states_what_files_unpack_to(written):
    fields = json.loads((written / "manifest.json").read_text())
    for name, size in fields["unpacked_bytes"].items():
        if name.endswith(".npz"):
            with zipfile.ZipFile(written / name) as archive:
                unpacked = sum(len(archive.read(member)) for member in archive.namelist())
        else:
            unpacked = len(lzma.decompress((written / name).read_bytes()))
        assert size == unpacked, name


def test_equal_trainings_give_equal_bytes(tmp_path, models, manifest):
    first = write_bundle(tmp_path / "a", models, manifest)
    second = write_bundle(tmp_path / "b", models, manifest)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert first.digest == second.digest


def test_the_digest_tells_trainings_apart(tmp_path, models, manifest):
    first = write_bundle(tmp_path / "a", models, manifest)
    other = [dataclasses.replace(models[0], centre=np.array([0.25, -0.50001])), models[1]]
    assert write_bundle(tmp_path / "b", other, manifest).digest != first.digest


def test_an_older_bundle_is_replaced(written, models, manifest):
    write_bundle(written, models[:1], manifest)
    assert set(open_bundle(written).models) == {"gemm"}
    assert set(contents(written)) == {"manifest.json", "gemm.npz", "gemm.ubj.xz"}
    assert [path.name for path in written.parent.iterdir()] == ["bundle"]  # nothing left beside


def test_a_copy_has_the_same_bytes_and_replaces_an_older_bundle(
        written, tmp_path, models, manifest):
    write_bundle(tmp_path / "older", models[:1], manifest)
    for target in ("fresh", "older"):
        copied = copy_bundle(written, tmp_path / target)
        assert contents(tmp_path / target) == contents(written)
        assert copied.digest == open_bundle(written).digest
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "fresh", "older"}


@pytest.mark.parametrize("harm", ["source", "target"])
def test_what_is_no_bundle_is_not_copied_nor_replaced(written, tmp_path, harm):
    (tmp_path / "mine").mkdir()
    if harm == "source":
        (written / "gemm.npz").write_bytes(b"PK")
    else:
        (tmp_path / "mine" / "thesis.tex").write_text("years")
    before = contents(tmp_path / "mine")
    with pytest.raises(InputError, match="bundle-digest" if harm == "source" else "is no bundle"):
        copy_bundle(written, tmp_path / "mine")
    assert contents(tmp_path / "mine") == before


@pytest.mark.parametrize(("changes", "word"), [
    ({"low": np.full(4, 9.0)}, "low is above high"),
    ({"low": np.zeros(3)}, r"low has the shape \(3,\)"),
    ({"widths": np.full((2, 2, 2), -1.0)}, "negative"),
    ({"levels": np.array([0.9, 0.5])}, "do not rise"),
    ({"centre": np.array([np.nan, 0.0])}, "centre is not finite"),
    ({"units": ("1",)}, "4 features have 1 units"),
    ({"name": "../gemm"}, "models.0..name"),
    ({"features": ("a", "a", "b", "c")}, "models.0..features"),
    ({"features": ("a", "b", "c"), "units": ("1",) * 3, "low": np.zeros(3), "high": np.ones(3)},
     "trees look at feature 3 of 3"),
    ({"params": {"depth": np.float32(1)}}, "float32"),
    ({"params": {"rate": float("nan")}}, "plain, finite"),
    ({"n_rows": -1}, "n_rows"),
    ({"device_columns": ("colour",)}, "'colour' is no feature"),
    ({"device_columns": ()}, r"devices has the shape \(2, 1\), not \(devices, 0\)"),
    ({"devices": np.full((1, 1), np.inf)}, "devices is not finite"),
])
def test_nothing_is_written_or_lost_when_a_model_is_wrong(written, models, manifest, changes, word):
    before = contents(written)
    wrong = [dataclasses.replace(models[0], **changes), models[1]]
    with pytest.raises(InputError, match=word):
        write_bundle(written, wrong, manifest)
    assert contents(written) == before
    assert [path.name for path in written.parent.iterdir()] == ["bundle"]


@pytest.mark.parametrize("changes", [{"created": "2026-01-02T03:04:05"}, {"created": "today"},
                                     {"name": "a b"}, {"sources": ()}], ids=str)
def test_a_wrong_manifest_is_refused(tmp_path, models, manifest, changes):
    with pytest.raises(InputError, match="bundle-manifest"):
        write_bundle(tmp_path / "bundle", models, dataclasses.replace(manifest, **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_bundle_is_never_replaced(tmp_path, models, manifest, kind):
    target = tmp_path / "mine"
    if kind == "folder":
        target.mkdir()
        (target / "thesis.tex").write_text("years")
    elif kind == "file":
        target.write_text("years")
    else:
        (tmp_path / "real").mkdir()
        target.symlink_to(tmp_path / "real")
    with pytest.raises(InputError, match="is no bundle"):
        write_bundle(target, models, manifest)
    assert target.is_symlink() or "years" in (
        target.read_text() if kind == "file" else (target / "thesis.tex").read_text())


def test_a_failing_rename_puts_the_old_bundle_back(written, models, manifest, monkeypatch):
    """The second of three renames fails, as on a full disk."""
    before, rename, calls = contents(written), os.rename, []

    def failing(source, target, **kwargs):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        rename(source, target, **kwargs)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(InputError, match="No space left"):
        write_bundle(written, models[:1], manifest)
    assert len(calls) == 3 and contents(written) == before


def test_the_manifest_is_what_people_can_read(written):
    fields = json.loads((written / "manifest.json").read_text())
    assert fields["sources"][0]["licence"] == "Apache-2.0"
    assert set(fields["versions"]) == {"python", "numpy", "xgboost"}
    assert set(fields["files"]) == {"gemm.npz", "gemm.ubj.xz", "attention.npz", "attention.ubj.xz"}
