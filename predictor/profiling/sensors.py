"""Clock, power and temperature of the GPU that a process measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Sensors:
    """What a device said right after a timing; NaN where it says nothing."""

    clock_hz: float = math.nan
    power_w: float = math.nan
    temperature_c: float = math.nan


def sensors(device: str) -> Sensors:
    """Return the sensors of this process's GPU; nothing for a CPU or without NVML."""
    handle = _handle() if device == "cuda" else None
    if handle is None:
        return Sensors()
    import pynvml

    def read(function: Any, *arguments: Any) -> float:
        try:
            return float(function(handle, *arguments))
        except pynvml.NVMLError:
            return math.nan

    return Sensors(read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM) * 1e6,
                   read(pynvml.nvmlDeviceGetPowerUsage) * 1e-3,
                   read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU))


@lru_cache(maxsize=1)
def _handle() -> Any:
    """Return NVML's handle of torch's current device, None where there is no NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    import torch

    try:
        pynvml.nvmlInit()
        bus = torch.cuda.get_device_properties(torch.cuda.current_device()).pci_bus_id
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return next((one for one in handles if pynvml.nvmlDeviceGetPciInfo(one).bus == bus), None)
    except pynvml.NVMLError:
        return None
