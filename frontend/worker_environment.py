"""What a model's processes are started with: command, environment variables, compute threads."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING

from marserve.frontend.dependencies import PythonEnvironment

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig


_KEYS = re.compile(r"MARSERVE_[A-Z]+_KEY(_FILE)?")


def worker_command(python: PythonEnvironment) -> list[str]:
    """Returns the command of a spawned worker."""
    return [python.executable, "-m", "marserve.worker"]


def template_command(python: PythonEnvironment) -> list[str]:
    """Returns the command of a template."""
    return [python.executable, "-m", "marserve.worker.template"]


def compute_threads(workers: int) -> int:
    """Returns the compute threads for each of some workers.

    Two workers that each take all cores get in each other's way, so they share them.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() else max(1, (os.cpu_count() or 1) // max(1, workers))


def environment(config: ServerConfig, python: PythonEnvironment, workers: int) -> dict[str, str]:
    """Returns the environment variables of one of some workers, or of their template."""
    hidden = config.blacklist_env_vars
    env = {k: v for k, v in os.environ.items() if not hidden or not re.fullmatch(hidden, k)}
    for name in [name for name in env if _KEYS.fullmatch(name)]:
        del env[name]  # who may manage the server is no business of a model's code
    env.setdefault("OMP_NUM_THREADS", str(compute_threads(workers)))
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONSAFEPATH"] = "1"  # the server's working directory is no place for modules
    env["TS_DECODE_INPUT_REQUEST"] = str(config.decode_input_request).lower()
    env["TEMP"] = env.get("TEMP", tempfile.gettempdir())
    path = [*python.path, env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return env
