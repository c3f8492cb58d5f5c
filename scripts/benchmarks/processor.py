"""The name of the processor, for the pages of the benchmarks."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Return the name with family and model, since one name may be that of several generations.

    Figures from before these were recorded have the name alone. It is unknown whether such a processor is the one of
    this machine, so the two are not equal.
    """
    fields: dict[str, str] = {}
    for line in CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else ():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), " ".join(value.split()))
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{part} {fields[key]}" for part, key in (("family", "cpu family"), ("model", "model")) if key in fields]
    return f"{name}, {' '.join(numbers)}" if numbers else name
