"""The registry on a SQLite store and on a server: versions, the champion, and fetching."""

from __future__ import annotations

import os

import pytest
from runs import (
    DIGEST, MLFLOW_MARKS, copy_store, free_port, make_run, make_template, serving,
)

from predictor.spec.errors import InputError
from predictor.training.record import Scores, write_run
from predictor.training.registry import (
    COLLECTIVES, KERNELS, Scoreboard, fetch, list_versions, promote, register, rollback,
)
from predictor.training.tracking import connection, log_run, store_uri

pytestmark = MLFLOW_MARKS


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(template, tmp_path, monkeypatch):
    """Make an empty store the one in use and return its address."""
    uri = copy_store(template, tmp_path / "store")
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def version(store, tmp_path):
    """Train, log and register a version with these MAPEs by group; return its number."""
    counted = []

    def make(name=KERNELS, **mape):
        counted.append(name)
        record = make_run(tmp_path / "runs", f"run-{len(counted)}", mape=mape or {"all": 5.0})
        log_run(record)
        return register(record, name)

    return make


def aliases():
    return {(found.name, found.version): found.aliases for found in list_versions()
            if found.aliases}


def refused(call, *arguments, **named):
    with pytest.raises(InputError) as error:
        call(*arguments, **named)
    return error.value.problems


def test_a_version_is_registered_in_the_store_of_the_users_cache(
        template, tmp_path, monkeypatch):
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    copy_store(template, tmp_path / "cache" / "mlflow")
    record = make_run(tmp_path / "runs", "run-1", mape={"all": 5.0})
    log_run(record)
    assert register(record, KERNELS) == 1
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_versions_are_counted_and_listed_newest_first(version):
    assert (version(all=5.0, bf16=4.0), version(all=3.0), version(COLLECTIVES)) == (1, 2, 1)
    listed = list_versions()
    assert [(found.name, found.version, found.run_id) for found in listed] == [
        (KERNELS, 2, "run-2"), (KERNELS, 1, "run-1"), (COLLECTIVES, 1, "run-3")]
    assert listed[1].mape == {"gemm/all": 5.0, "gemm/bf16": 4.0}
    assert listed[1].digest == DIGEST and listed[1].aliases == ()
    assert listed[1].created.endswith("+00:00")


def test_an_empty_registry_lists_nothing(store):
    assert list_versions() == []


def test_a_bundle_is_registered_once(store, tmp_path):
    record = make_run(tmp_path / "runs")
    log_run(record)
    assert register(record, KERNELS) == register(record, KERNELS) == 1
    assert len(list_versions()) == 1


def test_a_run_that_is_not_logged_is_not_registered(store, tmp_path):
    [problem] = refused(register, make_run(tmp_path / "runs"), KERNELS)
    assert problem.rule == "run-logged" and "predict-time models log" in problem.remedy


@pytest.mark.parametrize("call", [
    lambda name: register(None, name), lambda name: promote(name, 1), rollback,
    lambda name: fetch(f"models:/{name}@champion")])
def test_other_models_are_left_alone(store, call):
    assert refused(call, "their-model")[0].rule == "model-name"


def test_a_better_version_becomes_champion_and_the_old_one_is_kept(version):
    for mape in (5.0, 4.0, 3.0):
        version(all=mape)
    first = promote(KERNELS, 1)
    assert (first.version, first.before) == (1, None)
    assert aliases() == {(KERNELS, 1): ("champion",)}
    assert promote(KERNELS, 2).before == 1
    assert aliases() == {(KERNELS, 2): ("champion",), (KERNELS, 1): ("previous",)}
    assert promote(KERNELS, 3).before == 2
    assert aliases() == {(KERNELS, 3): ("champion",), (KERNELS, 2): ("previous",)}


def test_promoting_the_champion_again_changes_nothing(version):
    version(all=5.0)
    version(all=4.0)
    promote(KERNELS, 1)
    promote(KERNELS, 2)
    assert promote(KERNELS, 2).before == 1
    assert aliases() == {(KERNELS, 2): ("champion",), (KERNELS, 1): ("previous",)}


def test_a_worse_version_is_refused_with_every_group_that_is_worse(version):
    version(all=5.0, bf16=4.0, fp8=9.0, tf32=2.0)
    version(all=3.0, bf16=4.51, fp8=9.6, tf32=2.5)  # better on the whole
    promote(KERNELS, 1)
    problems = refused(promote, KERNELS, 2)
    assert [(problem.rule, problem.where) for problem in problems] == [
        ("champion-worse", "gemm/bf16"), ("champion-worse", "gemm/fp8")]
    assert "4.51 %" in problems[0].message and "4.00 % of champion 1" in problems[0].message
    assert aliases() == {(KERNELS, 1): ("champion",)}


def test_the_slack_is_points_and_may_differ_by_group(version):
    version(all=5.0, bf16=4.0)
    version(all=5.75, bf16=6.0)
    promote(KERNELS, 1)
    wide = Scoreboard(slack=0.75, by_group={"gemm/bf16": 1.5})
    assert [one.where for one in refused(promote, KERNELS, 2, scoreboard=wide)] == ["gemm/bf16"]
    wider = Scoreboard(slack=0.75, by_group={"gemm/bf16": 2.0})
    assert promote(KERNELS, 2, scoreboard=wider).version == 2
    none = Scoreboard(slack=0.0)
    assert promote(KERNELS, 1, scoreboard=none).before == 2  # better in each


def test_leaving_a_group_out_is_not_a_way_to_be_champion(version):
    version(all=5.0, bf16=4.0)
    version(all=1.0)
    promote(KERNELS, 1)
    [problem] = refused(promote, KERNELS, 2)
    assert (problem.rule, problem.where) == ("champion-scored", "gemm/bf16")


def test_new_groups_are_welcome(version):
    version(all=5.0)
    version(all=5.0, nvfp4=60.0)
    promote(KERNELS, 1)
    assert promote(KERNELS, 2).version == 2


def test_without_scores_no_version_is_champion(store, tmp_path):
    record = make_run(tmp_path / "runs")
    silent = Scores(mape=None, median_ape=1.0, bias=None, coverage=None, half_width=None, rows=1)
    other = write_run(
        tmp_path / "runs" / "silent", started=record.started, seconds=1.0, git_commit="c",
        command="x", params={}, metrics={"gemm": {"all": silent}}, datasets=[],
        bundle=record.bundle, digest=DIGEST, plots={}, worst_rows="id\n")
    log_run(other)
    register(other, KERNELS)
    assert refused(promote, KERNELS, 1)[0].rule == "recorded-scores"
    assert aliases() == {}


def test_what_does_not_exist_cannot_be_champion(version):
    assert refused(promote, KERNELS, 1)[0].rule == "model-version"
    version()
    assert refused(promote, KERNELS, 2)[0].rule == "model-version"


def test_rollback_puts_the_previous_champion_back_once(version):
    version(all=5.0)
    version(all=4.0)
    assert refused(rollback, KERNELS)[0].rule == "previous-champion"
    promote(KERNELS, 1)
    assert refused(rollback, KERNELS)[0].rule == "previous-champion"
    promote(KERNELS, 2)
    back = rollback(KERNELS)
    assert (back.version, back.before) == (1, 2)
    assert aliases() == {(KERNELS, 1): ("champion",)}
    assert refused(rollback, KERNELS)[0].rule == "previous-champion"
    assert promote(KERNELS, 2).before == 1


def test_a_promotion_that_stopped_halfway_is_repeated(version):
    version(all=5.0)
    version(all=4.0)
    promote(KERNELS, 1)
    with connection() as client:  # as far as it came
        client.set_registered_model_alias(KERNELS, "previous", "1")
    assert refused(rollback, KERNELS)[0].rule == "previous-champion"
    assert promote(KERNELS, 2).before == 1
    assert aliases() == {(KERNELS, 2): ("champion",), (KERNELS, 1): ("previous",)}


def test_models_have_champions_of_their_own(version):
    version()
    version(COLLECTIVES)
    promote(KERNELS, 1)
    promote(COLLECTIVES, 1)
    assert aliases() == {(KERNELS, 1): ("champion",), (COLLECTIVES, 1): ("champion",)}


def test_a_bundle_is_fetched_without_the_code_beside_it(version, tmp_path):
    version(all=5.0)
    promote(KERNELS, 1)
    folder = fetch(f"models:/{KERNELS}@champion")
    assert folder.is_relative_to(tmp_path / "cache")
    assert sorted(path.name for path in folder.iterdir()) == ["gemm.npz", "manifest.json"]
    assert (folder / "gemm.npz").read_bytes() == bytes(range(256))
    assert list(folder.parent.iterdir()) == [folder]
    assert fetch(f"models:/{KERNELS}/1") == folder


def test_fetching_executes_nothing(version, tmp_path):
    version()
    mark = tmp_path / "executed"
    [code] = (tmp_path / "store" / "artifacts").rglob("served.py")
    code.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
                    "raise RuntimeError('executed')\n", encoding="utf-8")
    fetch(f"models:/{KERNELS}/1")
    assert not mark.exists()
    from mlflow.pyfunc import load_model

    with pytest.raises(Exception, match="executed"):  # what loading it would do
        load_model(str(code.parent))
    assert mark.exists()


def test_a_fetched_bundle_is_kept_and_a_lost_one_fetched_again(version):
    version()
    address = f"models:/{KERNELS}/1"
    folder = fetch(address)
    (folder / "gemm.npz").write_bytes(b"mine")
    assert (fetch(address) / "gemm.npz").read_bytes() == b"mine"  # its digest is checked on opening
    (folder / "manifest.json").unlink()
    assert (fetch(address) / "gemm.npz").read_bytes() == bytes(range(256))


def test_what_holds_no_bundle_is_refused_and_not_kept(version, tmp_path):
    version()
    for manifest in (tmp_path / "store" / "artifacts").rglob("manifest.json"):
        manifest.unlink()
    assert refused(fetch, f"models:/{KERNELS}/1")[0].rule == "model-bundle"
    assert list((tmp_path / "cache" / "registry").iterdir()) == []


def test_a_version_that_others_made_from_a_folder_is_refused(store, tmp_path):
    with connection() as client:
        client.create_registered_model(KERNELS)
        client.create_model_version(KERNELS, (tmp_path / "anything").as_uri())
    assert refused(fetch, f"models:/{KERNELS}/1")[0].rule == "model-bundle"
    assert refused(promote, KERNELS, 1)[0].rule == "recorded-scores"
    assert [found.mape for found in list_versions()] == [{}]


@pytest.mark.parametrize(("address", "rule"), [
    ("", "model-address"), (KERNELS, "model-address"), (f"models:/{KERNELS}", "model-address"),
    (f"models:/{KERNELS}/0", "model-address"), (f"models:/{KERNELS}/latest", "model-address"),
    (f"models:/{KERNELS}/1/artifacts", "model-address"), (f"runs:/{KERNELS}/1", "model-address"),
    (f"models:/../{KERNELS}/1", "model-address"), (f"models:/{KERNELS}/1\n", "model-address"),
    (f"models:/{KERNELS}/9", "model-version"), (f"models:/{KERNELS}@champion", "model-alias"),
])
def test_addresses_that_name_nothing(version, address, rule):
    version()
    assert refused(fetch, address)[0].rule == rule


def test_a_store_that_is_away_is_an_input_error(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    assert store_uri().startswith("http")
    for call in (list_versions, lambda: promote(KERNELS, 1), lambda: rollback(KERNELS),
                 lambda: fetch(f"models:/{KERNELS}/1")):
        assert refused(call)[0].rule == "tracking-store"


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_server_serves_the_whole_life_of_a_bundle(template, tmp_path, monkeypatch):
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    uri = copy_store(template, tmp_path / "store")
    with serving(tmp_path / "store", uri) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        for name, mape in (("run-1", 5.0), ("run-2", 4.0), ("run-3", 8.0)):
            record = make_run(tmp_path / "runs", name, mape={"all": mape})
            assert log_run(record) is not None
            register(record, KERNELS)
        assert promote(KERNELS, 1).before is None
        assert promote(KERNELS, 2).before == 1
        assert refused(promote, KERNELS, 3)[0].rule == "champion-worse"
        assert aliases() == {(KERNELS, 2): ("champion",), (KERNELS, 1): ("previous",)}
        two = fetch(f"models:/{KERNELS}@champion")
        assert (two / "gemm.npz").read_bytes() == bytes(range(256))
        assert rollback(KERNELS).version == 1
        one = fetch(f"models:/{KERNELS}@champion")
        assert one != two and one == fetch(f"models:/{KERNELS}/1")
        assert sorted(path.name for path in one.iterdir()) == ["gemm.npz", "manifest.json"]
        assert refused(fetch, f"models:/{KERNELS}@best")[0].rule == "model-alias"
        assert refused(fetch, f"models:/{KERNELS}/7")[0].rule == "model-version"
    assert not (tmp_path / "mlruns").exists()
