"""What all tests share: the reference tables, and an account of everything skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Two test processes share the cores: threads that spin beside each other starve both.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The machines that run the tests are shared: how long an example takes says nothing.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

ROOT = Path(__file__).parents[1]
REQUIRED = frozenset(filter(None, os.environ.get("PREDICT_TIME_REQUIRE", "").split(",")))
"""Things that must be at hand: skips for want of them become failures."""


def missing(what: str, reason: str) -> None:
    """Skip the test for want of ``what``, or fail when it is required."""
    if what in REQUIRED:
        pytest.fail(f"{what} is required by PREDICT_TIME_REQUIRE: {reason}", pytrace=False)
    pytest.skip(f"{what}: {reason}")


@pytest.fixture(scope="session")
def reference_folder() -> Path:
    """Folder where the measured tables would lie."""
    return Path(os.environ.get("PREDICT_TIME_REFERENCE", str(ROOT.parent / "shared" / "data")))


@pytest.fixture
def reference(reference_folder: Path) -> Path:
    """Folder of the measured tables; the test is skipped without it."""
    if not (reference_folder / "steps" / "published_steps.csv").is_file():
        missing("reference", "PREDICT_TIME_REFERENCE does not name the measured tables")
    return reference_folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn every other skip whose reason starts with a required thing into a failure."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        what = report.longrepr[2].removeprefix("Skipped: ").split(":")[0]
        if what in REQUIRED:
            report.outcome = "failed"
            report.longrepr = f"{what} is required by PREDICT_TIME_REQUIRE"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List every skipped test with its reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"skipped: {len(skipped)}")
    for report in skipped:
        terminalreporter.line(f"{report.nodeid}: {report.longrepr[2]}")
