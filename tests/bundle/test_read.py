"""What a bundle may not be: damaged, foreign, or a way into this machine."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from predictor.bundle import open_bundle
from predictor.bundle.format import LARGEST_FILE_BYTES
from predictor.bundle.trees import ROWS_BY_FOREST
from predictor.spec.errors import InputError
from predictor.timing.forest import LEAF

ROOT = Path(__file__).parents[2]
REMEDY = "retrain with: predict-time train all --data DIR"


def refused(folder, rule, word=None):
    with pytest.raises(InputError, match=word) as caught:
        open_bundle(folder)
    assert {problem.rule for problem in caught.value.problems} == {f"bundle-{rule}"}
    assert {problem.remedy for problem in caught.value.problems} == {REMEDY}
    return caught.value.problems


def archive_of(written, **replaced):
    """The members of gemm.npz, some replaced by an array or by bytes."""
    with zipfile.ZipFile(written / "gemm.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, value in replaced.items():
        if isinstance(value, np.ndarray):
            buffer = io.BytesIO()
            np.save(buffer, value, allow_pickle=True)
            value = buffer.getvalue()
        members[f"{name}.npy"] = value
    return members


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_another_format_version_is_refused_before_its_fields(written, reseal, version):
    reseal(written, lambda fields: fields.update(format_version=version, surprise=1))
    refused(written, "version", "this predict-time reads 1")


def test_an_unsealed_manifest_of_a_newer_format_is_called_newer(written):
    (written / "manifest.json").write_text('{"format_version": 7}')
    refused(written, "version", "'7'")


@pytest.mark.parametrize("name", ["manifest.json", "gemm.npz", "attention.ubj.xz"])
def test_a_missing_file_is_named(written, name):
    (written / name).unlink()
    assert name in str(refused(written, "files")[0])


def test_a_file_that_the_manifest_does_not_name_is_refused(written):
    (written / "extra.py").write_text("print()")
    refused(written, "files", "extra.py")


@pytest.mark.parametrize("where", ["nowhere", "manifest.json"])
def test_what_is_no_folder_is_refused(written, where):
    refused(written / where, "folder", "cannot read the folder")


def test_a_folder_name_that_no_folder_can_have_is_refused():
    refused("a\0b", "folder")


def test_all_changed_files_are_named_at_once(written):
    for name in ("gemm.npz", "attention.ubj.xz"):
        with (written / name).open("r+b") as file:
            file.seek(200)
            file.write(b"????")
    assert {problem.where for problem in refused(written, "digest")} == {
        "gemm.npz", "attention.ubj.xz"}


def test_no_parser_sees_a_changed_file(written, monkeypatch):
    (written / "gemm.npz").write_bytes(b"PK harm")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    refused(written, "digest")


def test_the_manifest_is_held_to_its_own_digest(written):
    text = (written / "manifest.json").read_text()
    (written / "manifest.json").write_text(text.replace("Apache-2.0", "Apache-1.0"))
    refused(written, "digest")
    (written / "manifest.json").write_text(text + " ")
    refused(written, "digest")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ufeff{}", "[" * 100_000, '{"a": NaN}',
                                  '{"a": 1e999}', '{"a": "' + "9" * 5000 + '"}', "\0"])
def test_what_is_no_manifest_is_refused(written, text):
    (written / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"bundle-(manifest|version)"):
        open_bundle(written)


def test_all_wrong_fields_are_named_at_once(written, reseal):
    def change(fields):
        fields["surprise"] = 1
        del fields["created"]
        fields["models"][0]["n_rows"] = -3
        fields["models"][1]["hook"] = "os.system"
        fields["sources"][0]["sha256"] = "abc"
    reseal(written, change)
    messages = "\n".join(str(problem) for problem in refused(written, "manifest"))
    for word in ("unknown field 'surprise'", "created is missing", "models[0].n_rows",
                 "unknown field models[1].'hook'", "sources[0].sha256"):
        assert word in messages


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", "", "C:\\x", "gemm\0"])
def test_names_that_lead_elsewhere_are_refused(written, reseal, name):
    """As a file and as a model, whose name makes file names."""
    content = (written / "manifest.json").read_bytes()
    digest = json.loads(content)["files"]["gemm.npz"]
    reseal(written, lambda fields: fields["files"].update({name: digest}))
    refused(written, "manifest", "files names")
    (written / "manifest.json").write_bytes(content)

    def rename(fields):
        fields["models"][0]["name"] = name
        fields["files"][f"{name}.npz"] = fields["files"].pop("gemm.npz")
        fields["files"][f"{name}.ubj.xz"] = fields["files"].pop("gemm.ubj.xz")
    reseal(written, rename)
    refused(written, "manifest", r"models\[0\].name")


@pytest.mark.parametrize("name", ["manifest.json", "gemm.npz", "gemm.ubj.xz"])
def test_links_are_not_followed(written, tmp_path, name):
    """Even to the right bytes: what a link leads to may change after it was checked."""
    (written / name).rename(tmp_path / "elsewhere")
    (written / name).symlink_to(tmp_path / "elsewhere")
    refused(written, "files", "not a regular file")


def test_a_pipe_is_refused_without_waiting(written):
    (written / "gemm.npz").unlink()
    os.mkfifo(written / "gemm.npz")
    refused(written, "files", "not a regular file")


@pytest.mark.parametrize("name", ["manifest.json", "gemm.npz", "gemm.ubj.xz"])
def test_a_huge_file_is_refused_unread(written, name):
    os.truncate(written / name, LARGEST_FILE_BYTES + 1)
    refused(written, "size", "larger than")


def test_a_folder_of_many_files_is_refused(written):
    for number in range(100):
        (written / f"{number}").touch()
    refused(written, "files", "more than 33 entries")


class Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickles_are_refused_unopened(written, reseal, tmp_path):
    harm = np.empty(4, dtype=object)
    harm[0] = Harm(tmp_path / "harmed")
    content = zipped(archive_of(written, low=harm))
    with np.load(io.BytesIO(content), allow_pickle=True) as loaded:
        loaded["low"]  # the harm is real
    assert (tmp_path / "harmed").exists()
    (tmp_path / "harmed").unlink()
    reseal(written, files={"gemm.npz": content})
    refused(written, "arrays", "low is not an array of float64")
    assert not (tmp_path / "harmed").exists()


def npy(header: bytes, data: bytes = b"") -> bytes:
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
WRONG_ARRAYS = {
    "huge shape": ("low", npy(HEADER % b"(999999999,)")),
    "overflowing shape": ("widths", npy(HEADER % b"(999999999, 999999999, 999999999)")),
    "negative shape": ("low", npy(HEADER % b"(-4,)", bytes(32))),
    "expression": ("low", npy(HEADER % b"(2+2,)", bytes(32))),
    "call": ("low", npy(HEADER % b"(len('abcd'),)", bytes(32))),
    "too few bytes": ("low", npy(HEADER % b"(4,)", bytes(31))),
    "too many bytes": ("low", npy(HEADER % b"(4,)", bytes(33))),
    "no header": ("low", b""),
    "other version": ("low", b"\x93NUMPY\x03\x00" + npy(HEADER % b"(4,)", bytes(32))[8:]),
    "big-endian": ("low", np.zeros(4, ">f8")),
    "float32": ("low", np.zeros(4, np.float32)),
    "fortran": ("widths", np.asfortranarray(np.ones((2, 2, 2)))),
    "two dimensions": ("low", np.zeros((4, 1))),
    "other length": ("high", np.full(5, 9.0)),
    "NaN bound": ("low", np.full(4, np.nan)),
    "infinite base": ("base", np.array(np.inf)),
    "root outside": ("root", np.array([0, 10**6], np.int32)),
    "infinite device": ("devices", np.full((2, 1), np.inf, np.float32)),
    "no device": ("devices", np.zeros((0, 1), np.float32)),
    "devices of other figures": ("devices", np.ones((2, 2), np.float32)),
    "double devices": ("devices", np.ones((2, 1))),
    "text": ("root", np.array(["a"])),
}


@pytest.mark.parametrize("wrong", WRONG_ARRAYS)
def test_wrong_arrays_are_refused(written, reseal, wrong):
    name, value = WRONG_ARRAYS[wrong]
    reseal(written, files={"gemm.npz": zipped(archive_of(written, **{name: value}))})
    refused(written, "arrays", name)


def test_a_flag_that_is_neither_true_nor_false_is_refused(written, reseal):
    members = archive_of(written)
    members["missing_left.npy"] = members["missing_left.npy"][:-1] + b"\x02"
    reseal(written, files={"gemm.npz": zipped(members)})
    refused(written, "arrays", "neither true nor false")


def test_missing_and_further_arrays_are_refused(written, reseal):
    members = archive_of(written)
    further = members | {"../../x.npy": members["low.npy"]}
    reseal(written, files={"gemm.npz": zipped(further)})
    refused(written, "arrays", "not the arrays of a model")
    del members["low.npy"]
    reseal(written, files={"gemm.npz": zipped(members)})
    refused(written, "arrays", "not the arrays of a model")


def test_an_array_given_twice_is_refused(written, reseal):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns of the duplicate we want
        for name, content in [*archive_of(written).items(), ("low.npy", b"")]:
            archive.writestr(name, content)
    reseal(written, files={"gemm.npz": buffer.getvalue()})
    refused(written, "arrays", "not the arrays of a model")


BOMB_BYTES = 100_000_000


@contextlib.contextmanager
def little_memory():
    """Fail when Python's own objects grow by more than a few megabytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def bomb_of(written, declares):
    """An archive whose array of numbers inflates to BOMB_BYTES but declares another size."""
    content = zipped(archive_of(written, number=bytes(BOMB_BYTES)), zipfile.ZIP_DEFLATED)
    assert len(content) < 500_000
    record = content.rindex(b"number.npy") - 46  # in the directory, which zipfile goes by
    assert content[record:].startswith(b"PK")
    return content[:record + 24] + declares.to_bytes(4, "little") + content[record + 28:]


def test_an_archive_that_declares_more_than_the_manifest_is_refused_unread(
        written, reseal, monkeypatch):
    bomb = bomb_of(written, BOMB_BYTES)
    size = json.loads((written / "manifest.json").read_bytes())["unpacked_bytes"]["gemm.npz"]
    reseal(written, lambda fields: fields["unpacked_bytes"].update({"gemm.npz": size}),
           {"gemm.npz": bomb})
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # nothing is unpacked
    refused(written, "arrays", f"bytes of arrays, the manifest {size}")


def test_an_archive_that_holds_more_than_it_declares_is_unpacked_no_further(written, reseal):
    reseal(written, files={"gemm.npz": bomb_of(written, 5000)})
    with little_memory():
        refused(written, "arrays", "Bad CRC-32")


@pytest.mark.parametrize(("name", "size"), [("gemm.npz", 64_000_000),
                                            ("gemm.ubj.xz", 256_000_000)])
def test_a_manifest_that_states_more_than_any_model_needs_is_refused(written, reseal, name, size):
    reseal(written, lambda fields: fields["unpacked_bytes"].update({name: size}))
    refused(written, "manifest", f"more than {size}")  # with the other model's


def test_sizes_of_other_files_are_refused(written, reseal):
    reseal(written, lambda fields: fields["unpacked_bytes"].update({"other.npz": 1}))
    refused(written, "manifest", "does not name the same files")


def test_archives_packed_in_another_way_are_refused(written, reseal):
    reseal(written, files={"gemm.npz": zipped(archive_of(written), zipfile.ZIP_LZMA)})
    refused(written, "arrays", "neither stored nor deflated")


def test_damaged_compression_is_refused(written, reseal):
    content = bytearray((written / "gemm.npz").read_bytes())
    place = content.index(b"number.npy") + len(b"number.npy")
    content[place + 10:place + 30] = bytes(20)
    reseal(written, files={"gemm.npz": bytes(content)})
    refused(written, "arrays", "no archive of arrays")


def greedy(content):
    """An xz file that asks for a dictionary of 512 MiB (xz-file-format 1.1, section 5.3.1)."""
    result = bytearray(content)
    assert result[14:16] == b"\x21\x01"  # LZMA2 with one byte of properties
    result[16] = 34
    result[20:24] = zlib.crc32(result[12:20]).to_bytes(4, "little")
    return bytes(result)


@pytest.mark.parametrize("harm", ["bomb", "short", "cut", "greedy", "no xz", "more behind"])
def test_a_booster_of_another_size_than_stated_is_refused(written, reseal, features, harm):
    """In the first prediction of many rows, when it is unpacked."""
    pytest.importorskip("xgboost", reason="xgboost: it loads boosters")
    good = (written / "gemm.ubj.xz").read_bytes()
    size = json.loads((written / "manifest.json").read_bytes())["unpacked_bytes"]["gemm.ubj.xz"]
    content = {"bomb": lzma.compress(bytes(50_000_000)), "short": lzma.compress(b"short"),
               "cut": good[:-20], "greedy": greedy(good), "no xz": b"{}",
               "more behind": good + b"more"}[harm]
    reseal(written, lambda fields: fields["unpacked_bytes"].update({"gemm.ubj.xz": size}),
           {"gemm.ubj.xz": content})
    trees = open_bundle(written).models["gemm"].regressor
    rows = features(ROWS_BY_FOREST + 1)
    with little_memory(), pytest.raises(InputError, match=r"decompress.*bundle-booster"):
        trees.predict(rows)


@pytest.mark.parametrize(("name", "change"), [
    ("feature", lambda array: np.append(array[:-1], array[:1])),  # the last leaf becomes a node
    ("feature", lambda array: array[:-1]),
    ("root", lambda array: np.ascontiguousarray(array[::-1])),
    ("root", lambda array: array[1:]),
    ("root", lambda array: array[:0]),
    ("number", lambda array: array[:3]),
    ("missing_left", lambda array: array[:3]),
])
def test_arrays_that_make_no_trees_are_refused(written, reseal, name, change):
    with np.load(written / "gemm.npz") as arrays:
        changed = change(arrays[name])
    reseal(written, files={"gemm.npz": zipped(archive_of(written, **{name: changed}))})
    refused(written, "arrays", "feature|root|number|missing_left")


def test_a_tree_whose_inner_nodes_come_too_late_is_refused(written, reseal):
    """Leaf, node, leaf: one leaf more than nodes, but the node would be its own child."""
    with np.load(written / "gemm.npz") as arrays:
        feature, root = arrays["feature"].copy(), arrays["root"]
    tree = slice(root[1], root[2])
    feature[tree] = np.roll(feature[tree], 1)
    assert feature[root[1]] == LEAF
    reseal(written, files={"gemm.npz": zipped(archive_of(written, feature=feature))})
    refused(written, "arrays", "does not come after its parent")


def test_devices_that_no_feature_describes_are_refused(written, reseal):
    def change(fields):
        fields["models"][0]["device_columns"] = ["colour"]
    reseal(written, change)
    refused(written, "arrays", "'colour' is no feature")


@pytest.mark.parametrize("content", [b"", b"PK", b"\0" * 1000])
def test_what_is_no_archive_is_refused(written, reseal, content):
    reseal(written, files={"gemm.npz": content})
    refused(written, "arrays", "no archive of arrays")


def test_trees_that_read_a_feature_the_model_lacks_are_refused(written, reseal):
    with np.load(written / "gemm.npz") as arrays:
        feature = arrays["feature"]
    feature[0] = 4
    reseal(written, files={"gemm.npz": zipped(archive_of(written, feature=feature))})
    refused(written, "arrays", "trees look at feature 4 of 4")


AUDITED = """
import sys
from pathlib import Path
from predictor.bundle import open_bundle
from predictor.timing.residual import ResidualModel
import numpy as np
folder = Path(sys.argv[1])
open_bundle(folder)  # the first call imports parts of zipfile and numpy
seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)))
bundle = open_bundle(folder)
bundle.models["gemm"].predict(np.zeros((300, 4), np.float32), np.zeros(300, np.int64))
banned = ("exec", "compile", "import", "pickle.", "subprocess.", "socket.", "os.system",
          "ctypes.", "marshal.")
bad = [entry for entry in seen if entry[0].startswith(banned)]
opened = {Path(args[0]).name for event, args in seen
          if event == "open" and isinstance(args[0], str)}
assert not bad, bad
assert opened == {path.name for path in folder.iterdir()}, opened
heavy = {"xgboost", "pandas", "sklearn", "mlflow", "pydantic", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
"""


def test_opening_executes_nothing_and_loads_nothing_heavy(written):
    subprocess.run([sys.executable, "-c", AUDITED, str(written)], check=True, cwd=ROOT, timeout=60)


def test_damaged_bundles_are_all_refused_by_one_surviving_process():
    """A short run of the experiment; its own checks make the exit code."""
    done = subprocess.run([sys.executable, "-m", "experiments.bundle_fuzz.run", "60", "7", "--dry"],
                          cwd=ROOT, timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["blind"] == {"refused": 60}


def test_the_recorded_run_of_the_experiment_is_full_and_sound():
    results = json.loads((ROOT / "experiments/bundle_fuzz/results.json").read_text())
    assert results["blind"] == {"refused": 500} and results["exit_code_of_worker"] == 0
