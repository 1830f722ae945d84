"""The instruction sets of this processor, as far as compilers use them unasked."""

from __future__ import annotations

from pathlib import Path

_PREFIXES = ("avx", "amx", "fma", "f16c", "bmi", "sse4", "vaes", "vpclmul", "gfni", "sve", "asimd")


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Returns their names, sorted; none where the system does not tell.

    Args:
        cpuinfo: What Linux says of its processors.
    """
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    found = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    flags = found.partition(":")[2].split()
    return sorted(flag for flag in flags if flag.startswith(_PREFIXES))
