import json
from pathlib import Path

import pandas as pd
import pytest

from predictor.datasets.kernel_schema import COLUMNS, normalise
from predictor.datasets.sources import campaign
from predictor.spec.errors import InputError

RECORD = {"gpu": "h200-sxm", "driver": "570.1", "cuda": "12.8", "torch": "2.8.0"}
ROW = {"source": "campaign", "licence": "Apache-2.0", "file": "one", "timing_kind": "event",
       "gpu": "h200-sxm", "software": "torch", "version": "2.8.0", "impl": "nn.Linear",
       "op": "linear", "pass": "fwd", "dtype": "bf16", "batch": 1, "m": 4096, "n": 1024,
       "k": 1024, "latency_s": 2e-5, "flops": 2.0 * 4096 * 1024 * 1024}


def write(folder: Path, name: str = "one", record: object = RECORD,
          frame: pd.DataFrame | None = None) -> Path:
    file = folder / f"{name}.parquet"
    (normalise(pd.DataFrame([ROW])) if frame is None else frame).to_parquet(file)
    if record is not None:
        text = record if isinstance(record, str) else json.dumps(record)
        file.with_suffix(".json").write_text(text, encoding="utf-8")
    return file


def test_tidy_table_comes_back_as_it_is(tmp_path: Path) -> None:
    frame = campaign.read(write(tmp_path))
    pd.testing.assert_frame_equal(frame, normalise(pd.DataFrame([ROW])))
    assert list(frame.columns) == list(COLUMNS)


def test_folder_stacks_its_campaigns(tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two", frame=normalise(pd.DataFrame([ROW, ROW | {"m": 8.0}])))
    assert list(campaign.read(tmp_path)["m"]) == [4096, 4096, 8]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no campaign"):
        campaign.read(tmp_path / "nothing")


def test_environment_uses_the_catalogues_name(tmp_path: Path) -> None:
    file = write(tmp_path, record=RECORD | {"gpu": "NVIDIA H200"})
    assert campaign.read_environment(file) == campaign.Environment(
        gpu="h200-sxm", driver="570.1", cuda="12.8", torch="2.8.0")


def test_every_wrong_key_of_the_record_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, record={"gpu": "h200-sxm", "driver": 570, "torch": " ", "host": "me"})
    with pytest.raises(InputError) as caught:
        campaign.read(file)
    assert [problem.where for problem in caught.value.problems] == [
        "driver", "cuda", "torch", "host"]


@pytest.mark.parametrize(("record", "message"), [
    (None, "cannot read one.json"), ("{", "cannot read one.json"), ("[]", "no JSON object"),
    (RECORD | {"gpu": "abacus"}, "no GPU called 'abacus'"),
    (RECORD | {"gpu": "b200-sxm"}, "rows of h200-sxm, but was measured on b200-sxm")])
def test_record_of_another_kind_is_refused(
        tmp_path: Path, record: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        campaign.read(write(tmp_path, record=record))


TIDY = normalise(pd.DataFrame([ROW]))


@pytest.mark.parametrize(("frame", "message"), [
    (TIDY.drop(columns=["op", "tp"]), "lacks the columns op, tp"),
    (TIDY.assign(colour="red"), "unknown column colour"),
    (TIDY.assign(latency_s=0.0), "latency_s"), (TIDY.assign(op="juggle"), "juggle"),
    (TIDY[list(reversed(COLUMNS))], "column"),
    (TIDY.assign(m=TIDY["m"].astype(int)), "m: ")])
def test_table_that_is_not_tidy_is_refused(
        tmp_path: Path, frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        campaign.read(write(tmp_path, frame=frame))
