"""A campaign's folder keeps what was measured, whatever happens to the process."""

import json
import subprocess
import sys

import pandas as pd
import pytest
from campaigns import HEAD, KERNELS, start

from predictor.profiling.campaign import parse_campaign, plan
from predictor.profiling.point import Outcome, Status
from predictor.profiling.store import Store
from predictor.profiling.worker import settle
from predictor.spec.errors import InputError

TEXT = HEAD + KERNELS


def outcome(point, **cells):
    return Outcome(point.key, Status.OK, ({"table": "kernels", "latency_s": 1.0, **cells},))


def test_a_torn_line_is_no_answer_and_harms_no_other(tmp_path):
    store = start(tmp_path / "a", TEXT)
    first, second = plan(parse_campaign(TEXT))
    with store.journal() as journal:
        journal.end(outcome(first))
    path = store.folder / "journal-0.jsonl"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(json.dumps(outcome(second).to_json()).encode()[:40])
    assert set(store.outcomes()) == {first.key}
    with store.journal() as journal:
        journal.end(outcome(second))
    assert set(store.outcomes()) == {first.key, second.key}
    assert path.read_bytes().startswith(whole)


def test_tables_hold_every_point_once(tmp_path):
    store = start(tmp_path / "a", TEXT)
    first, second = plan(parse_campaign(TEXT))
    with store.journal() as journal:
        journal.end(outcome(first, m=1))
        journal.end(outcome(first, m=2))
    assert store.assemble() == {"points": 2, "kernels": 1}
    points = pd.read_parquet(store.folder / "points.parquet")
    assert list(points["key"]) == [first.key, second.key]
    assert list(points["status"]) == ["ok", "planned"]
    assert pd.read_parquet(store.folder / "kernels.parquet")["m"].tolist() == [1.0]


def test_the_point_in_flight_is_known(tmp_path):
    store = start(tmp_path / "a", TEXT)
    first, second = plan(parse_campaign(TEXT))
    with store.journal() as journal:
        journal.begin(first)
        journal.end(outcome(first))
        assert store.begun() is None
        journal.begin(second)
    assert store.begun() == second.key


def test_what_another_part_began_is_its_own(tmp_path):
    store = start(tmp_path / "a", TEXT)
    first, second = plan(parse_campaign(TEXT))
    with store.journal(0) as one, store.journal(1) as other:
        one.begin(first)
        other.begin(second)
        assert (store.begun(0), store.begun(1)) == (first.key, second.key)
        settle(store, one, 0)
        settle(store, one, 0)
    assert store.crashes() == {first.key: 1}
    assert store.begun(1) == second.key


def test_a_folder_holds_one_campaign(tmp_path):
    start(tmp_path / "a", TEXT)
    with pytest.raises(InputError, match="go on with it with --resume"):
        start(tmp_path / "a", TEXT)
    with pytest.raises(InputError, match="another campaign"):
        start(tmp_path / "a", TEXT.replace("small", "other"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        start(tmp_path / "b", TEXT)


def test_an_unwritable_place_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Not a directory"):
        start(tmp_path / "file" / "a", TEXT)


FULL = """
import resource, signal, sys
from pathlib import Path
from predictor.profiling.campaign import parse_campaign, plan
from predictor.profiling.point import Outcome, Status
from predictor.profiling.store import Store
from predictor.profiling.worker import settle
from predictor.spec.errors import InputError
store = Store(Path(sys.argv[1]))
points = plan(store.campaign())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with store.journal() as journal:
        journal.end(Outcome(points[0].key, Status.OK))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        journal.end(Outcome(points[1].key, Status.OK, message="x" * 500))
except InputError as error:
    print(error)
try:
    store.assemble()
except InputError as error:
    print(error)
"""


def test_a_full_disk_leaves_what_was_measured(tmp_path):
    store = start(tmp_path / "a", TEXT)
    done = subprocess.run([sys.executable, "-c", FULL, str(store.folder)], text=True,
                          capture_output=True, check=True)
    assert done.stdout.count("what was measured is kept") == 2, done.stdout + done.stderr
    assert sorted(path.name for path in store.folder.iterdir()) == [
        "campaign.yaml", "journal-0.jsonl"]
    first, second = plan(parse_campaign(TEXT))
    assert set(store.outcomes()) == {first.key}
    with store.journal() as journal:
        journal.end(outcome(second))
    assert set(store.outcomes()) == {first.key, second.key}


def test_a_folder_without_a_campaign_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no campaign"):
        Store(tmp_path).campaign()
