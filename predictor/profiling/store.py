"""The folder of a campaign: a journal that survives a kill at any moment, and tables made of it.

Layout::

    campaign.yaml       the file that was asked for, word for word
    environment.json    what it was measured on
    journal-N.jsonl     one line for each point that was begun, and one for what came of it
    *.parquet           tables made of the journal: kernels, collectives, layers, ..., points
    steps.csv           measured steps, in the columns that ``evaluate`` and ``calibrate`` read
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from predictor.profiling.campaign import Campaign, parse_campaign, plan
from predictor.profiling.point import Outcome, Point, Row
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

CAMPAIGN, ENVIRONMENT, POINTS, STEPS = "campaign.yaml", "environment.json", "points", "steps"
PATIENCE_S = 15.0
"""How long a journal's lock is waited for: killed workers need a moment to go."""
_COMPACT = (",", ":")


class Store:
    """A campaign's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def open(self, campaign: Campaign, *, resume: bool) -> None:
        """Make the folder ready for a campaign.

        Raises
        ------
        InputError
            When it holds another campaign, or the same one and ``resume`` is not set, or when it
            cannot be written.
        """
        path = self.folder / CAMPAIGN
        if path.is_file():
            if path.read_text(encoding="utf-8") != campaign.text:
                raise InputError.of("campaign-mixed", f"{self.folder} holds another campaign",
                                    "give another --out", "--out")
            if not resume:
                raise InputError.of("campaign-resume", f"{self.folder} holds this campaign already",
                                    "go on with it with --resume, or give another --out", "--out")
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        if any(self.folder.iterdir()):
            raise InputError.of("campaign-folder", f"{self.folder} is not empty and holds no "
                                "campaign", "give a new folder", "--out")
        write_whole(path, campaign.text.encode())

    def forget(self) -> None:
        """Take back :meth:`open` as long as nothing was recorded."""
        if self.environment() is None and not self._journals():
            (self.folder / CAMPAIGN).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others may use the folder by now
                self.folder.rmdir()

    def campaign(self) -> Campaign:
        """Return the campaign of this folder."""
        path = self.folder / CAMPAIGN
        if not path.is_file():
            raise InputError.of("campaign-folder", f"{self.folder} holds no campaign",
                                "give the folder that predict-time profile wrote")
        return parse_campaign(path.read_text(encoding="utf-8"))

    def environment(self) -> dict[str, Any] | None:
        """Return the record of what the campaign is measured on; None before the first point."""
        path = self.folder / ENVIRONMENT
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def keep_environment(self, record: Mapping[str, Any]) -> None:
        """Write the record of the environment."""
        write_whole(self.folder / ENVIRONMENT,
                    (json.dumps(record, indent=2, sort_keys=True) + "\n").encode())

    def outcomes(self) -> dict[str, Outcome]:
        """Return what came of the points so far, the first answer of each, by key."""
        found: dict[str, Outcome] = {}
        for line in self._lines():
            if "status" in line:
                found.setdefault(line["key"], Outcome.from_json(line))
        return found

    def crashes(self) -> dict[str, int]:
        """Return how many processes each point has taken down, by key."""
        counts: dict[str, int] = {}
        for line in self._lines():
            if line.get("crashed"):
                counts[line["key"]] = counts.get(line["key"], 0) + 1
        return counts

    def begun(self, shard: int = 0) -> str | None:
        """Return the point that a shard began last, None when something has come of it.

        Other shards may be measuring at this moment: what they began is theirs.
        """
        last: str | None = None
        path = self._journal_of(shard)
        for line in _read(path) if path.is_file() else ():
            if line.get("begun"):
                last = line["key"]
            elif line["key"] == last:
                last = None
        return None if last in self.outcomes() else last

    def size(self) -> int:
        """Return the bytes of all journals: it grows whenever something was answered."""
        return sum(path.stat().st_size for path in self._journals())

    @contextmanager
    def journal(self, shard: int = 0) -> Iterator[Journal]:
        """Open a shard's journal for writing; one process at a time."""
        path = self._journal_of(shard)
        try:
            file = path.open("ab+", buffering=0)
        except OSError as error:
            raise unwritable(path, error) from None
        with file:
            _lock(file, path)
            yield Journal(file, path)

    def assemble(self) -> dict[str, int]:
        """Write all tables anew from the journal; return the rows of each.

        Every planned point stands in ``points.parquet`` exactly once, those without an answer
        with the status ``planned``.
        """
        campaign, outcomes = self.campaign(), self.outcomes()
        planned = plan(campaign)
        tables: dict[str, list[Row]] = {POINTS: [_account(point, outcomes) for point in planned]}
        for point in planned:
            for row in outcomes[point.key].rows if point.key in outcomes else ():
                tables.setdefault(str(row["table"]), []).append(
                    {**{name: cell for name, cell in row.items() if name != "table"},
                     "point": point.key})
        for name, rows in tables.items():
            if name == STEPS:
                write_whole(self.folder / f"{STEPS}.csv", _csv(rows))
            else:
                write_whole(self.folder / f"{name}.parquet", _parquet(name, rows))
        return {name: len(rows) for name, rows in tables.items()}

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob("journal-*.jsonl"))

    def _journal_of(self, shard: int) -> Path:
        return self.folder / f"journal-{shard}.jsonl"

    def _lines(self) -> Iterator[dict[str, Any]]:
        for path in self._journals():
            yield from _read(path)


class Journal:
    """Appends to a journal; every line is on the disk when a call returns."""

    def __init__(self, file: BinaryIO | Any, path: Path) -> None:
        self._file, self._path = file, path
        file.seek(0, os.SEEK_END)
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            self._write(b"\n")  # ends a line that a kill tore

    def begin(self, point: Point) -> None:
        """Note that a point is about to be measured."""
        self._line({"key": point.key, "begun": True})

    def crash(self, key: str) -> None:
        """Note that a point took its process down."""
        self._line({"key": key, "crashed": True})

    def end(self, outcome: Outcome) -> None:
        """Note what came of a point."""
        self._line(outcome.to_json())

    def _line(self, content: Mapping[str, Any]) -> None:
        self._write((json.dumps(content, separators=_COMPACT) + "\n").encode())

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._file.write(data):]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from None


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error for a folder or file that cannot be written."""
    return InputError.of("campaign-writable", f"cannot write {path}: {error.strerror}",
                         "free space or give another --out; what was measured is kept", "--out")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp's is for the owner alone
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        Path(temporary or path.parent / ".none").unlink(missing_ok=True)
        raise unwritable(path, error) from None


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a journal's lines; one that a kill tore is no line."""
    with path.open("rb") as file:
        for line in file:
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict) and "key" in content:
                yield content


def _lock(file: Any, path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise InputError.of("campaign-busy", f"another process writes {path}",
                                    "wait for it, or give another --out", "--out") from None
            time.sleep(0.1)
        else:
            return


def _account(point: Point, outcomes: Mapping[str, Outcome]) -> Row:
    outcome = outcomes.get(point.key)
    return {"key": point.key, "kind": str(point.kind), "ranks": point.ranks,
            "launch": point.launch, "spec": json.dumps(dict(point.spec), sort_keys=True),
            "status": str(outcome.status) if outcome else "planned",
            "message": outcome.message if outcome else "",
            "rows": len(outcome.rows) if outcome else 0,
            "seconds": outcome.seconds if outcome else 0.0}


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(name: str, rows: Sequence[Row]) -> bytes:
    import pandas as pd

    frame = pd.DataFrame.from_records([dict(row) for row in rows], columns=_columns(rows))
    buffer = io.BytesIO()
    _SHAPED.get(name, _as_is)(frame).to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def _as_is(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Give columns that hold numbers one type: a blank cell is NaN, not None."""
    import pandas as pd

    for name in frame.columns:
        if frame[name].map(lambda cell: isinstance(cell, float | int) or cell is None).all():
            frame[name] = pd.to_numeric(frame[name]).astype("float64")
    return frame


_SHAPED: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "kernels": _numbers, "collectives": _numbers, "layers": _numbers, "overlaps": _numbers,
    "attributions": _numbers}
