"""Damages every file of a small real bundle and opens what is left: run.py [trials] [seed].

Half of the damage is blind: flipped bytes and cut ends, all of which must be refused. In the other
half the digests are made right again, as by somebody who means harm, so that decompressors and the
parsers of arrays and manifest see the damage: refused or sound, but never a crash, a hang or a
foreign exception.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from predictor.bundle import (
    TrainedModel,
    TrainingManifest,
    TrainingSource,
    open_bundle,
    write_bundle,
)
from predictor.bundle.digest import canonical_json, manifest_digest, sha256_of
from predictor.bundle.format import MANIFEST
from predictor.bundle.trees import ROWS_BY_FOREST
from predictor.spec.errors import InputError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 20.0
ROWS = 8
MANY_ROWS = ROWS_BY_FOREST + 1
FEATURES = ("log2 m", "log2 n", "log2 k", "share of peak")


def small_bundle(folder: Path) -> None:
    """Train two families on made-up residuals and write them."""
    made = np.random.default_rng(0)
    models = []
    for name, depth in (("gemm", 4), ("attention", 3)):
        x = made.normal(size=(600, len(FEATURES))).astype(np.float32)
        x[::31, 2] = np.nan
        y = np.sin(x[:, 0]) + 0.1 * x[:, 1]
        booster = xgboost.train(
            {"objective": "reg:absoluteerror", "max_depth": depth, "tree_method": "hist",
             "nthread": 1}, xgboost.DMatrix(x, label=y), 20)
        models.append(TrainedModel(
            name=name, features=FEATURES, units=("1",) * len(FEATURES), booster=booster,
            low=np.nanmin(x, axis=0).astype(np.float64),
            high=np.nanmax(x, axis=0).astype(np.float64), groups=(f"{name}/fwd", f"{name}/bwd"),
            centre=np.array([0.1, -0.1]), levels=np.array([0.5, 0.9, 0.99]),
            widths=made.uniform(0.01, 0.3, (2, 2, 3)).cumsum(axis=2),
            params={"max_depth": depth}, n_rows=len(x), device_columns=("share of peak",),
            devices=np.unique(x[:, 3:], axis=0)[::100]))
    source = TrainingSource(name="made up", source="experiments/bundle_fuzz", licence="Apache-2.0",
                            rows=1200, sha256=sha256_of(b"made up"))
    write_bundle(folder, models, TrainingManifest(
        name="predict-time-fuzz", created="2026-01-01T00:00:00+00:00", sources=(source,)))


def damaged(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done and the damaged content, always different from what it was."""
    if rng.random() < 0.3:
        return "cut", content[:rng.randrange(len(content))]
    result = bytearray(content)
    for place in rng.sample(range(len(result)), rng.choice((1, 1, 2, 8))):
        result[place] ^= rng.randrange(1, 256)
    return "flip", bytes(result)


def damaged_member(content: bytes, rng: random.Random) -> bytes:
    """Return an archive with damage in one member and checksums that fit it."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, \
            zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        hit = rng.choice(old.namelist())
        for name in old.namelist():
            array = old.read(name)
            # Mostly in the header, which is small against what follows.
            end = rng.choice((len(array), 128))
            new.writestr(name, damaged(array[:end], rng)[1] + array[end:] if name == hit else array)
    return result.getvalue()


def resealed(folder: Path, name: str, content: bytes, rng: random.Random) -> None:
    """Damage one file and make all digests right again."""
    fields = json.loads((folder / MANIFEST).read_bytes())
    if name == MANIFEST:
        key, value = rng.choice(list(_leaves(fields)))
        key[value] = rng.choice([None, -1, 10**30, 1.5, "", "../x", "/dev/zero", [], {}, [[]],
                                 True, "\x00", "é" * 3000, float(2**60)])
    else:
        (folder / name).write_bytes(content)
        fields["files"][name] = sha256_of(content)
        fields["unpacked_bytes"][name] = _declared(content, fields["unpacked_bytes"][name])
    fields["digest"] = manifest_digest(fields)
    (folder / MANIFEST).write_bytes(canonical_json(fields))


def _declared(content: bytes, otherwise: int) -> int:
    """Return what a damaged archive says it unpacks to, for a manifest that agrees with it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return sum(member.file_size for member in archive.infolist())
    except Exception:  # whatever zipfile makes of damage
        return otherwise


def _leaves(value: Any) -> Any:
    """Yield every container with each of its keys, at all depths."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _leaves(inner)


def worker() -> None:
    """Open the folders named on standard input, one a line, and say what came of each."""
    for line in sys.stdin:
        print(json.dumps(_opened(Path(line.rstrip("\n")))), flush=True)


def _opened(folder: Path) -> dict[str, str]:
    try:
        bundle = open_bundle(folder)
    except InputError as error:
        first = error.problems[0]
        complete = all(problem.message and problem.remedy for problem in error.problems)
        return {"outcome": "refused" if complete else "refused without words", "rule": first.rule}
    except BaseException as error:  # the point of the experiment
        return {"outcome": f"{type(error).__name__}: {error}", "rule": ""}
    for model in bundle.models.values():
        x = np.linspace(-3, 3, ROWS * len(model.features), dtype=np.float32).reshape(ROWS, -1)
        answer = model.predict(x, np.zeros(ROWS, dtype=np.int64)).log_ratio
        if not np.isfinite(answer).all():
            return {"outcome": "opened and not finite", "rule": ""}
    try:
        for model in bundle.models.values():
            model.regressor.predict(np.zeros((MANY_ROWS, len(model.features)), dtype=np.float32))
    except InputError as error:
        return {"outcome": "opened, booster refused", "rule": error.problems[0].rule}
    return {"outcome": "opened", "rule": ""}


def fuzz(trials: int, seed: int) -> dict[str, Any]:
    """Return outcomes by kind of damage; the worker is one process for all trials."""
    rng = random.Random(seed)
    counts: dict[str, Counter[str]] = {"blind": Counter(), "resealed": Counter()}
    rules: Counter[str] = Counter()
    files: Counter[str] = Counter()
    slowest_s = 0.0
    process = subprocess.Popen([sys.executable, "-W", "error", "-m", "experiments.bundle_fuzz.run",
                                "--worker"], cwd=ROOT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        with tempfile.TemporaryDirectory() as scratch:
            good = Path(scratch) / "good"
            small_bundle(good)
            contents = {path.name: path.read_bytes() for path in sorted(good.iterdir())}
            for trial in range(2 * trials):
                kind = "blind" if trial < trials else "resealed"
                name = list(contents)[trial % len(contents)]
                how, content = damaged(contents[name], rng)
                if kind == "resealed" and name[-3:] == "npz" and rng.random() < 0.7:
                    content = damaged_member(contents[name], rng)
                folder = Path(scratch) / f"{trial}"
                shutil.copytree(good, folder)
                if kind == "blind":
                    (folder / name).write_bytes(content)
                else:
                    resealed(folder, name, content, rng)
                start = time.perf_counter()
                answer = _ask(process, folder)
                slowest_s = max(slowest_s, time.perf_counter() - start)
                counts[kind][answer["outcome"]] += 1
                rules[answer["rule"]] += 1
                files[f"{name} {how}" if kind == "blind" else f"{name} resealed"] += 1
                shutil.rmtree(folder)
            opened = _ask(process, good)["outcome"]
    finally:
        process.stdin.close()
        signals = process.wait(LIMIT_S)
        process.stdout.close()
    return {"seed": seed, "trials": trials, "undamaged": opened,
            **{kind: dict(count) for kind, count in counts.items()},
            "rules": dict(sorted(rules.items())), "damage": dict(sorted(files.items())),
            "exit_code_of_worker": signals, "slowest_s": round(slowest_s, 2)}


def _ask(process: subprocess.Popen[str], folder: Path) -> dict[str, str]:
    """Have the worker open ``folder``; a dead or hanging worker ends the run."""
    assert process.stdin is not None and process.stdout is not None
    hung = threading.Timer(LIMIT_S, process.kill)
    hung.start()
    try:
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    finally:
        hung.cancel()
    if not line:
        code = process.wait()
        word = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise SystemExit(f"the worker ended with {word} on {folder}")
    answer: dict[str, str] = json.loads(line)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", nargs="?", type=int, default=500)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help="open folders from standard input")
    parser.add_argument("--dry", action="store_true", help="print only, leave results.json alone")
    options = parser.parse_args()
    if options.worker:
        return worker()
    results = fuzz(options.trials, options.seed)
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    sound = (set(results["blind"]) == {"refused"} and results["undamaged"] == "opened"
             and set(results["resealed"]) <= {"refused", "opened", "opened, booster refused"}
             and results["exit_code_of_worker"] == 0)
    if not sound:
        raise SystemExit("a damaged bundle was not refused")
    if not options.dry:
        (HERE / "results.json").write_text(text)
    return None


if __name__ == "__main__":
    main()
