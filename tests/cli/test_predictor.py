"""--predictor and --analytic, with a bundle that was really trained."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from builders import H100, cluster, job

from predictor.bundle import (
    TrainedModel, TrainingManifest, TrainingSource, open_bundle, write_bundle,
)
from predictor.catalog import load_gpu
from predictor.cli.predictor_option import chosen, timer_of
from predictor.lowering.tables import Dtype, GpuTable, KernelTable, Phase
from predictor.spec.cluster import Gpu
from predictor.spec.errors import InputError
from predictor.spec.parse import load_yaml
from predictor.spec.strategy import Strategy
from predictor.step.predict import predict_steps
from predictor.timing.device import Regime
from predictor.timing.features import (
    DEVICE_FEATURES, FEATURES, SOFTWARE, Conditions, TimingKind, device_features, kernel_features,
)
from predictor.timing.kernels import kernel_times
from predictor.version import __version__

xgboost = pytest.importorskip("xgboost", reason="xgboost: boosters are trained here")

ROOT = Path(__file__).parents[2]
SLOWER = 1.5
"""What GEMMs of few FLOP measure over the analytic time; the large ones measure just that."""
LARGE_FLOPS = 2.0**39
DEVICES = DEVICE_FEATURES[1:]
GROUPS = tuple(f"gemm/{phase}/bf16" for phase in ("forward", "backward", "weight"))
HEADER = "id,gpu,dtype,op,pass,m,n,k,latency_us,source"
KERNELS = [
    "a,a100-sxm-80gb,bf16,gemm,fwd,4096,4096,4096,900,made-up",
    "b,a100-sxm-80gb,bf16,gemm,fwd,8192,4096,4096,1700,other",
    "c,a100-sxm-80gb,bf16,gemm,bwd,4096,4096,4096,1500,made-up",
    "d,h100-sxm,bf16,gemm,fwd,8192,8192,4096,1100,other",
    "e,a100-sxm-80gb,fp32,gemm,bwd,2048,2048,2048,3000,other",
    "f,a100-sxm-80gb,bf16,layernorm,fwd,8192,8192,,400,other",
]


def job_gpu(job_file: Path) -> Gpu:
    """The GPU of the job file."""
    fields = load_yaml(job_file.read_text(encoding="utf-8"))
    return Gpu(**fields["cluster"]["groups"][0]["gpu"])


def gemms(count: int = 600) -> KernelTable:
    """bf16 GEMMs of many sizes on the first GPU of a table."""
    made = np.random.default_rng(0)
    sizes = 2.0 ** made.uniform(5, 16.5, size=(3, count))
    aligned = 64 * np.ceil(sizes / 64)
    m, n, k = np.where(made.random((3, count)) < 0.5, aligned, np.round(sizes))
    phase = made.choice([Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHT], count)
    whole = np.zeros(count, dtype=np.int64)
    return KernelTable(
        kind=whole, phase=phase.astype(np.int64), dtype=whole + Dtype.BF16, device=whole,
        batch=np.ones(count), m=m, n=n, k=k, causal=np.ones(count), flops=2 * m * n * k,
        bytes=2 * (m * k + n * k + m * n), launches=np.ones(count), portable=whole)


def train(gpu: Gpu) -> TrainedModel:
    """Train trees on GEMMs of one GPU; those below LARGE_FLOPS are SLOWER than physics says."""
    table, gpus = gemms(), GpuTable.from_gpus([gpu])
    timed = kernel_times(table, gpus, Regime.ISOLATED)
    made = np.random.default_rng(1)
    conditions = Conditions(made.choice([float(TimingKind.KERNEL), float(TimingKind.GRAPH)],
                                        len(table)),
                            made.choice([np.nan, *np.arange(len(SOFTWARE))], len(table)),
                            np.zeros(len(table)), np.zeros(len(table)))
    x = kernel_features("gemm", table, gpus, conditions, timed)
    noise = made.normal(scale=0.02, size=len(table))
    y = np.where(table.flops < LARGE_FLOPS, np.log(SLOWER), 0.0) + noise
    booster = xgboost.train(
        {"objective": "reg:absoluteerror", "max_depth": 3, "nthread": 1, "tree_method": "hist"},
        xgboost.DMatrix(x, label=y), 20)
    known = np.where(np.isfinite(x), x, 0).astype(float)
    width = np.quantile(np.abs(noise), 0.9)
    return TrainedModel(
        name="gemm", features=FEATURES["gemm"], units=("1",) * len(FEATURES["gemm"]),
        booster=booster, low=known.min(axis=0), high=known.max(axis=0), groups=GROUPS,
        centre=np.full(3, np.log(SLOWER)), levels=np.array([0.5, 0.9]),
        widths=np.tile([[width / 2, width], [width, 2 * width]], (3, 1, 1)),
        params={"max_depth": 3}, n_rows=len(table), device_columns=DEVICES,
        devices=device_features(gpus).astype(np.float32))


@pytest.fixture(scope="session")
def manifest() -> TrainingManifest:
    source = TrainingSource(name="made-up", source="made up here", licence="Apache-2.0", rows=600,
                            sha256="0" * 64)
    return TrainingManifest(name="predict-time-kernels", created="2026-01-02T03:04:05+00:00",
                            sources=(source,))


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    """Knows the catalogue's A100."""
    return train(load_gpu("a100-sxm-80gb"))


@pytest.fixture
def bundle(tmp_path, trained, manifest) -> Path:
    """Folder of a bundle that knows the catalogue's A100."""
    write_bundle(tmp_path / "bundle", [trained], manifest)
    return tmp_path / "bundle"


@pytest.fixture
def own_bundle(tmp_path, job_file, manifest) -> Path:
    """Folder of a bundle that knows the job file's GPU."""
    write_bundle(tmp_path / "own", [train(job_gpu(job_file))], manifest)
    return tmp_path / "own"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Say where the default predictor lies: nowhere yet."""
    folder = tmp_path / "installed"
    monkeypatch.setattr("predictor.catalog.data.model_folder", lambda: folder)
    return folder


@pytest.fixture
def kernels(tmp_path) -> Path:
    path = tmp_path / "kernels.csv"
    path.write_text("\n".join([HEADER, *KERNELS]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def step(predict_time, job_file):
    """Predict the job file; return the document."""
    def call(*arguments):
        result = predict_time("step", "--config", job_file, "--json", *arguments)
        assert result.code == 0, result.err
        return json.loads(result.out)
    return call


@pytest.fixture
def scored(predict_time, tmp_path):
    """Evaluate a table; return the document, its rows by id and what was said."""
    def call(*arguments):
        rows = tmp_path / "rows.csv"
        result = predict_time("evaluate", "--json", "--per-row", rows, *arguments)
        assert result.code == 0, result.err
        with rows.open(encoding="utf-8") as file:
            return json.loads(result.out), {row["id"]: row for row in csv.DictReader(file)}, \
                result.err
    return call


def damage(folder: Path) -> None:
    file = folder / "gemm.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def test_a_step_is_timed_by_the_bundle(step, own_bundle):
    learned, analytic = step("--predictor", own_bundle), step("--analytic")
    assert learned["predictor"] == open_bundle(own_bundle).digest
    assert learned["provenance"] == "learned"
    assert (analytic["predictor"], analytic["provenance"]) == ("analytic", "analytic")
    ratio = learned["breakdown"]["compute_s"] / analytic["breakdown"]["compute_s"]
    assert 1.05 < ratio < SLOWER  # GEMMs are slower, all else is as before
    assert learned["low_s"] is learned["high_s"] is None
    assert learned["memory"] == analytic["memory"]


def test_a_step_on_an_unseen_gpu_is_extrapolated(step, bundle):
    found = step("--predictor", bundle)  # knows another A100 than the job file's
    assert found["provenance"] == "extrapolated"
    assert found["predictor"] == open_bundle(bundle).digest


def test_text_says_what_the_time_rests_on(predict_time, job_file, own_bundle):
    digest = open_bundle(own_bundle).digest
    text = predict_time("step", "--config", job_file, "--predictor", own_bundle).out
    assert f", learned\npredictor  {digest[:12]}\n" in text
    assert "predictor  " not in predict_time("step", "--config", job_file, "--analytic").out


def test_the_installed_predictor_is_the_default(step, installed, own_bundle):
    own_bundle.rename(installed)
    digest = open_bundle(installed).digest
    assert step()["predictor"] == step("--predictor", "default")["predictor"] == digest
    assert step("--predictor", "analytic")["predictor"] == "analytic"


def test_without_an_installed_predictor_the_remedy_is_named(predict_time, job_file, installed):
    result = predict_time("step", "--config", job_file)
    assert result.code == 2
    assert "predict-time train all" in result.err and "--analytic" in result.err


def test_each_row_says_whether_its_gpu_was_seen(bundle):
    timer, _ = timer_of(str(bundle), analytic=False)
    work = job(cluster=cluster(gpu=load_gpu("a100-sxm-80gb")))
    other = replace(work, cluster=cluster(gpu=H100))
    found = predict_steps([work, other, work], [Strategy(), Strategy(), Strategy(tp=3)],
                          timer=timer)
    assert found.provenance.tolist() == ["learned", "extrapolated", ""]


def test_a_bundle_that_names_no_gpus_covers_all(tmp_path, trained, manifest):
    write_bundle(tmp_path / "any", [replace(
        trained, device_columns=(), devices=np.empty((0, 0), dtype=np.float32))], manifest)
    found = chosen(str(tmp_path / "any"), analytic=False)
    assert found.timer.covers(GpuTable.from_gpus([load_gpu("h100-sxm"), H100])).all()
    assert found.sources == {"made-up"}


def test_kernels_are_scored_with_the_bundle(scored, kernels, bundle):
    arguments = (kernels, "--quantity", "kernel_time")
    learned, rows, said = scored(*arguments, "--predictor", bundle)
    analytic, physics, silence = scored(*arguments, "--analytic")
    assert learned["predictor"] == open_bundle(bundle).digest
    assert analytic["predictor"] == "analytic"
    assert {name: row["provenance"] for name, row in rows.items()} == {
        "a": "learned", "b": "learned", "c": "learned", "d": "extrapolated",
        "e": "extrapolated", "f": "analytic"}
    ratio = {name: float(rows[name]["predicted"]) / float(physics[name]["predicted"])
             for name in rows}
    assert [ratio[name] for name in "abc"] == pytest.approx([SLOWER] * 3, rel=0.03)
    assert ratio["f"] == 1
    assert learned["in_sample_rows"] == 2
    assert "2 rows are in the predictor's training data" in said
    assert (analytic["in_sample_rows"], silence) == (0, "")


def test_a_measurement_rests_on_the_worst_of_its_kernels(
        scored, kernels, tmp_path, trained, manifest):
    write_bundle(tmp_path / "two", [replace(
        trained, groups=GROUPS[:2], centre=trained.centre[:2], widths=trained.widths[:2])],
        manifest)
    _, rows, _ = scored(kernels, "--quantity", "kernel_time", "--predictor", tmp_path / "two")
    assert rows["a"]["provenance"] == "learned"
    assert rows["c"]["provenance"] == "neighbour"  # no gradient of weights was measured


def test_intervals_of_kernels(scored, kernels, bundle):
    arguments = (kernels, "--quantity", "kernel_time")
    learned, rows, _ = scored(*arguments, "--predictor", bundle)
    reach = {name: float(row["high"]) / float(row["predicted"]) for name, row in rows.items()
             if row["high"]}
    assert set(reach) == set("abcde")
    assert reach["a"] == pytest.approx(reach["c"], rel=1e-6)
    assert reach["d"] > reach["a"]  # nobody measured its GPU
    assert learned["interval_coverage"] is not None
    assert learned["interval_half_width"] > 0
    assert scored(*arguments, "--analytic")[0]["interval_coverage"] is None


def test_steps_are_scored_with_the_bundle(scored, tmp_path, bundle):
    table = tmp_path / "steps.csv"
    table.write_text(
        "id,gpu,gpus_per_node,num_gpus,model_name,arch,num_layers,hidden,num_heads,vocab,seq_len,"
        "global_batch,micro_batch,tp,pp,precision,step_time_s,source\n"
        "a,A100-SXM4-80GB,8,16,gpt,gpt,24,2048,16,51200,2048,64,1,2,1,bf16,1.5,made-up\n"
        "b,H100-SXM5-80GB,8,16,gpt,gpt,24,2048,16,51200,2048,64,1,2,1,bf16,1.0,made-up\n",
        encoding="utf-8")
    learned, rows, said = scored(table, "--predictor", bundle)
    _, physics, _ = scored(table, "--analytic")
    assert [row["provenance"] for row in rows.values()] == ["learned", "extrapolated"]
    assert float(rows["a"]["predicted"]) > 1.02 * float(physics["a"]["predicted"])
    assert (learned["in_sample_rows"], said) == (0, "")  # no step was learned from


def test_collectives_of_a_bundle_without_them_stay_analytic(scored, tmp_path, bundle):
    table = tmp_path / "collectives.csv"
    table.write_text(
        "id,gpu,collective,bytes,time_us,nodes,world_size,intra_link,source\n"
        "a,A100 SXM 80GB,all_reduce,1e9,8500,1,8,NVLink3/NVSwitch,other\n", encoding="utf-8")
    learned, rows, _ = scored(table, "--quantity", "collective_time", "--predictor", bundle)
    _, physics, _ = scored(table, "--quantity", "collective_time", "--analytic")
    assert learned["predicted"] == 1, learned["refused"]
    assert rows["a"]["predicted"] == physics["a"]["predicted"]
    assert rows["a"]["provenance"] == "analytic"


def test_text_of_an_evaluation_names_the_predictor(predict_time, kernels, bundle):
    digest = open_bundle(bundle).digest
    out = predict_time("evaluate", kernels, "--quantity", "kernel_time", "--predictor", bundle).out
    assert f"scored (predictor {digest[:12]}, " in out
    assert "intervals cover" in out


def test_memory_is_never_learned(predict_time, tmp_path, bundle):
    table = tmp_path / "memory.csv"
    table.write_text(
        "id,framework,gpu,num_gpus,gpus_per_node,model,layers,hidden,heads,vocab,seq,mbs,gbs,tp,"
        "pp,dp,precision,measured_peak,unit,mem_kind\n"
        "m,Megatron-LM,A100-SXM4-80GB,8,8,gpt,24,2048,16,51200,2048,1,8,1,2,4,bf16,40,GiB,"
        "allocated\n", encoding="utf-8")
    result = predict_time("evaluate", table, "--quantity", "peak_memory", "--predictor", bundle,
                          "--json")
    document = json.loads(result.out)
    assert (document["predicted"], document["predictor"]) == (1, "analytic")


@pytest.mark.parametrize("verb", ["step", "evaluate"])
@pytest.mark.parametrize(("arguments", "words"), [
    (["--analytic", "--predictor", "default"], "--analytic contradicts --predictor default"),
    (["--analytic", "--predictor", "FOLDER"], "--analytic contradicts --predictor"),
    (["--predictor", "none-such"], "there is no learned predictor 'none-such'"),
    (["--predictor", "models:/nobody@champion"], "there is no model 'nobody'"),
    (["--predictor", "models:nonsense"], "is no address of a model"),
    (["--predictor", "EMPTY"], "manifest.json"),
])
def test_refusals(predict_time, job_file, kernels, bundle, tmp_path, verb, arguments, words):
    (tmp_path / "empty").mkdir()
    places = {"FOLDER": str(bundle), "EMPTY": str(tmp_path / "empty")}
    target = ["--config", job_file] if verb == "step" else [kernels, "--quantity", "kernel_time"]
    result = predict_time(verb, *target, *[places.get(word, word) for word in arguments])
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("--predictor", "default")])
def test_a_damaged_default_is_refused_and_not_replaced_by_physics(
        predict_time, job_file, installed, own_bundle, arguments):
    own_bundle.rename(installed)
    damage(installed)
    result = predict_time("step", "--config", job_file, *arguments)
    assert (result.code, result.out) == (2, "")
    assert "gemm.npz" in result.err
    assert "[bundle-digest]" in result.err
    assert predict_time("step", "--config", job_file, "--analytic").code == 0


def test_a_damaged_folder_is_refused(predict_time, kernels, bundle, tmp_path):
    damage(bundle)
    scores = tmp_path / "scores.json"
    result = predict_time("evaluate", kernels, "--quantity", "kernel_time", "--predictor", bundle,
                          "--output", scores)
    assert (result.code, result.out, scores.exists()) == (2, "", False)
    assert "[bundle-digest]" in result.err


def test_analytic_may_be_said_twice(step):
    assert step("--analytic", "--predictor", "analytic")["predictor"] == "analytic"


def test_timer_of_names_the_bundle(bundle):
    timer, digest = timer_of(str(bundle), analytic=False)
    assert (timer.provenance, digest) == ("learned", open_bundle(bundle).digest)
    timer, digest = timer_of(None, analytic=True)
    assert (timer.provenance, digest) == ("analytic", "analytic")
    with pytest.raises(InputError, match="one-predictor"):
        timer_of(str(bundle), analytic=True)


def test_version_names_the_installed_predictor(predict_time, installed, bundle):
    digest = open_bundle(bundle).digest
    bundle.rename(installed)
    (installed / "gemm.npz").unlink()  # the manifest is all that is read
    assert predict_time("--version").out == \
        f"predict-time {__version__} (predictor {digest[:12]}, trained 2026-01-02)\n"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", None])
def test_version_survives_a_damaged_manifest(predict_time, installed, content):
    installed.mkdir()
    if content is not None:
        (installed / "manifest.json").write_bytes(content)
    result = predict_time("--version")
    assert (result.code, result.out) == (
        0, f"predict-time {__version__} (predictor cannot be read)\n")


def test_a_learned_step_loads_nothing_heavy(job_file, own_bundle):
    words = ["step", "--config", str(job_file), "--predictor", str(own_bundle), "--json"]
    script = ("import sys\nfrom predictor.cli.main import run\n"
              f"code = run({words!r})\nheavy = [name for name in ('xgboost', 'sklearn', 'pandas', "
              "'pyarrow', 'numba', 'torch', 'mlflow', 'scipy') if name in sys.modules]\n"
              "sys.exit(f'loaded: {heavy}' if heavy else code)")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["provenance"] == "learned"


def test_a_job_file_is_yaml_that_names_no_predictor(predict_time, job_file):
    """Which predictor answers is no part of the job."""
    fields = yaml.safe_load(job_file.read_text(encoding="utf-8")) | {"predictor": "default"}
    job_file.write_text(yaml.safe_dump(fields), encoding="utf-8")
    assert predict_time("step", "--config", job_file).code == 2
