"""Kills a campaign twenty times at random moments and counts what is there in the end.

Run: ``python -m experiments.profiling_kill.run``. It rewrites results.json beside this file.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from predictor.profiling.campaign import parse_campaign, plan
from predictor.profiling.store import Store

KILLS, LONGEST_S = 20, 9.0
RESULTS = Path(__file__).with_name("results.json")
CAMPAIGN = """
name: killed
gpu: cpu-core
device: cpu
intra_link: loopback
most_seconds: 0.2
kernels:
  - {family: linear, m: {from: 16, to: 1024, factor: 1.4}, n: [64, 256, 1024], k: [64, 256, 1024],
     dtype: fp32}
collectives:
  - {collective: [all_reduce, all_gather], dtype: fp32, bytes: {from: 1024, to: 1048576, factor: 2},
     ranks: 2}
steps:
  - {style: gpt, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4, num_layers: 2,
     seq_len: 16, vocab_size: 64, global_batch_size: 4, ranks: 2, launches: 3,
     shapes: [{zero_stage: 0}, {zero_stage: 3}]}
"""


def main() -> None:
    """Kill, resume, count."""
    points = plan(parse_campaign(CAMPAIGN))
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        file, folder = Path(place, "killed.yaml"), Path(place, "out")
        file.write_text(CAMPAIGN)
        command = [sys.executable, "-m", "predictor", "profile", str(file), "--out", str(folder),
                   "--noisy", "--resume"]
        answered = [_killed(command, moments.uniform(2.0, LONGEST_S), folder)
                    for _ in range(KILLS)]
        subprocess.run(command, check=True, capture_output=True)
        result = _counted(folder, {point.key for point in points})
    result |= {"kills": KILLS, "answered_after_each_kill": answered}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def _killed(command: list[str], after_s: float, folder: Path) -> int:
    """Start the campaign, kill it, and return how many points have an answer."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return len(Store(folder).outcomes())


def _counted(folder: Path, planned: set[str]) -> dict[str, object]:
    """Return how often each point stands in the tables and in the journals."""
    table = pd.read_parquet(folder / "points.parquet")
    lines = [json.loads(line) for path in sorted(folder.glob("journal-*.jsonl"))
             for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    answers = collections.Counter(line["key"] for line in lines if "status" in line)
    return {
        "points": len(planned),
        "in_table_exactly_once": int(table["key"].is_unique and set(table["key"]) == planned),
        "status": table["status"].value_counts().to_dict(),
        "answered_twice": sum(count > 1 for count in answers.values()),
        "measurements_begun": sum(bool(line.get("begun")) for line in lines)}


if __name__ == "__main__":
    main()
