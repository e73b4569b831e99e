"""Run folders, tracking stores and tracking servers for tests; numbers are made up."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from predictor.training.record import RunRecord, Scores, TrainingData, write_run
from predictor.training.tracking import connection

STARTED = "2026-01-31T12:00:00+00:00"
STARTED_MS = 1_769_860_800_000
DIGEST = "d" * 64
PNG = b"\x89PNG\r\n\x1a\nmade up"
DATA = TrainingData("gemm", "campaign", "MIT", 7, "0123456789abcdef" * 4)

MLFLOW_MARKS = [
    pytest.mark.skipif(importlib.util.find_spec("mlflow") is None,
                       reason="mlflow: predict-time[tracking] is not installed"),
    # MLflow keeps a pool of connections for as long as the process lives.
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),
    # MLflow 3.17 declares its tables in a way that SQLAlchemy 2.1 deprecates.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    # It compares the columns of an example with a range, which pandas 3.1 deprecates.
    pytest.mark.filterwarnings("ignore:Operation with range is deprecated:DeprecationWarning"),
]


def scores(mape: float, *, coverage: float | None = 90.0) -> Scores:
    return Scores(mape=mape, median_ape=mape / 2, bias=-1.0, coverage=coverage, half_width=12.0,
                  rows=7)


def make_bundle(folder: Path) -> Path:
    """A bundle as far as tracking looks: a manifest and binary files."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f'{{"digest": "{DIGEST}"}}\n', encoding="utf-8")
    (folder / "gemm.npz").write_bytes(bytes(range(256)))
    return folder


def make_run(
    runs: Path, name: str = "run-1", *, mape: Mapping[str, float] | None = None,
    started: str = STARTED, digest: str = DIGEST,
) -> RunRecord:
    """Write a run folder; ``mape`` is by group of the family gemm."""
    bundle = runs.parent / "bundle-to-copy"
    groups = {"all": 5.0, "bf16": 4.0} if mape is None else mape
    return write_run(
        runs / name, started=started, seconds=2.5, git_commit="c0ffee",
        command="predict-time train all", params={"depth": 8, "objective": "absoluteerror"},
        metrics={"gemm": {group: scores(value) for group, value in groups.items()}},
        datasets=[DATA], bundle=bundle if bundle.exists() else make_bundle(bundle), digest=digest,
        plots={"gemm.png": PNG}, worst_rows="id,error\na,0.5\n")


def make_template(folder: Path) -> Path:
    """A migrated empty store: migrations take seconds, a copy of their result does not."""
    file = folder / "mlflow.db"
    with connection(f"sqlite:///{file}") as client:
        client.search_experiments()
    return file


def copy_store(template: Path, folder: Path) -> str:
    """Copy the template into ``folder`` and return the address of the copy."""
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{shutil.copy(template, folder / 'mlflow.db')}"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """One ``mlflow server`` on a SQLite file, in a process group of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        self.log = (folder / f"server-{self.port}.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store,
             "--artifacts-destination", str(folder / "artifacts"), "--host", "127.0.0.1",
             "--port", str(self.port), "--workers", "1"],
            cwd=folder, env=environment, stdout=self.log, stderr=subprocess.STDOUT,
            start_new_session=True)

    def wait(self, seconds: float = 90.0) -> None:
        """Return when the server answers."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, Path(self.log.name).read_text("utf-8")
                time.sleep(0.2)
        pytest.fail(f"no server at {self.uri}: {Path(self.log.name).read_text('utf-8')}")

    def kill(self) -> None:
        """Kill the server and its workers at once, as a machine that fails would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@contextmanager
def serving(folder: Path, store: str) -> Iterator[Server]:
    """Run a server for the time of a block."""
    server = Server(folder, store)
    try:
        server.wait()
        yield server
    finally:
        server.kill()
