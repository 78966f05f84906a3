"""What check.py writes down beside its own measurements, and how it says it."""

import os
import platform
import shutil
import sys
import tempfile
from typing import Any

import torch

from aiayn_cli.device import Device

Figures = dict[str, Any]


def machine(device: Device) -> Figures:
    found: Figures = {
        "device": device.explanation,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "free_disk_gib": round(shutil.disk_usage(tempfile.gettempdir()).free / 2**30, 1),
    }
    if device.device.type == "cuda":
        properties = torch.cuda.get_device_properties(device.device)
        found |= {"cuda": torch.version.cuda, "memory_gib": round(properties.total_memory / 2**30, 1)}
    return found


def as_text(figures: Figures) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value:.4g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
        for name, value in figures.items()
        if name != "passed"
    )


def graphs_made() -> int:
    """How many graphs torch.compile has made since it was reset."""
    counters = sys.modules.get("torch._dynamo.utils")
    return int(counters.counters["stats"]["unique_graphs"]) if counters else 0
