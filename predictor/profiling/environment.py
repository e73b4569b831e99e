"""What a campaign was measured on, without names of people or machines."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from predictor.profiling.campaign import Campaign
from predictor.spec.errors import InputError, Problem

MAY_DIFFER = frozenset({"host", "nodes"})
"""What may differ between the processes of one campaign: nodes of one kind take its parts."""


def environment(campaign: Campaign) -> dict[str, Any]:
    """Return the record of this process's machine.

    The host's name is hashed; serial numbers, paths and users are never read.

    Raises
    ------
    InputError
        When the campaign measures GPUs and torch sees none.
    """
    import torch

    record: dict[str, Any] = {
        "schema_version": 1, "gpu": campaign.gpu, "device": campaign.device,
        "torch": torch.__version__, "python": platform.python_version(),
        "system": platform.system(), "kernel": platform.release().split("-")[0],
        "cpu": _cpu_name(), "cores": os.cpu_count(),
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "driver": "", "cuda": ""}
    if campaign.device == "cpu":
        return record | {"threads": campaign.threads, "blas": _blas()}
    require_cuda()
    properties = torch.cuda.get_device_properties(0)
    return record | {
        "device_name": properties.name, "gpus": torch.cuda.device_count(),
        "memory_bytes": properties.total_memory, "sm_count": properties.multi_processor_count,
        "cuda": torch.version.cuda or "", "hip": torch.version.hip or "",
        "nccl": _nccl(), "cudnn": str(torch.backends.cudnn.version()),
        "topology": _nvidia_smi("topo", "-m"), **_nvml()}


def require_cuda() -> None:
    """Return when torch sees a GPU.

    Raises
    ------
    InputError
        Otherwise, with what to do.
    """
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        raise InputError.of(
            "gpu-present", "the campaign measures a GPU and torch sees none",
            "run it where the GPUs are" if built else "install a torch that was built for CUDA or "
            "ROCm; this one is for CPUs", "device")


def check_same(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Return when two records are of one environment.

    Raises
    ------
    InputError
        Naming everything that differs.
    """
    names = sorted((set(recorded) | set(now)) - MAY_DIFFER)
    problems = [
        Problem("campaign-environment", f"{name} was {recorded.get(name)!r} and is now "
                f"{now.get(name)!r}", "measure in one environment, or start another campaign",
                name)
        for name in names if recorded.get(name) != json.loads(json.dumps(now.get(name)))]
    if problems:
        raise InputError(problems)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _blas() -> str:
    import torch

    return "mkl" if torch.backends.mkl.is_available() else "openblas"


def _nccl() -> str:
    import torch

    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return ""


def _nvidia_smi(*arguments: str) -> str:
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True,
                              timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _nvml() -> dict[str, Any]:
    """Return driver and clock settings of the first GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {"driver": str(pynvml.nvmlSystemGetDriverVersion()),
                "max_clock_hz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
                * 1e6,
                "power_limit_w": pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) * 1e-3}
    except Exception:
        return {"driver": _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
                .split("\n")[0]}
