"""Python packages of a model: ``requirements.txt`` and virtual environments, built once and kept.

What is installed is kept under the hash of what determines it, so that the second registration, and
the next start of the server, costs nothing and needs no network. pip is run without a shell; its
output goes to the log.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.user_cache import user_cache
from marserve.frontend.errors import InvalidModel

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive
    from marserve.frontend.config import ServerConfig

logger = logging.getLogger(__name__)

_COMPLETE = ".complete"
_PIP_LIMIT_S = 1800.0
_LAST_LINES = 5
_SITES = "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')"
_LOCAL = re.compile(r"^\s*(-|\.|/|file:)|\.whl\b|\.tar\.gz\b|@\s*file:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """How to start a model's workers.

    Args:
        executable: The interpreter.
        path: Directories to put in front of its module search path.
    """

    executable: str
    path: list[str] = field(default_factory=list)


async def prepare_python(
    archive: Archive, config: ServerConfig, cache: Path | None = None
) -> PythonEnvironment:
    """Installs what an archive asks for, as far as the server's settings and its own ask for it.

    ``install_py_dep_per_model`` allows the requirements file; ``useVenv`` in model-config.yaml asks
    for an environment that has the server's packages below its own.

    Args:
        archive: Unpacked.
        config: ``install_py_dep_per_model`` and ``python`` are read.
        cache: Where installations are kept; the user's cache directory if not given.

    Raises:
        InvalidModel: If something cannot be installed; the cause is named.
    """
    python = config.python or sys.executable
    name = archive.manifest.model.model_name or archive.directory.name
    requirements = _requirements(archive) if config.install_py_dep_per_model else None
    use_venv = bool(archive.config.use_venv)
    if requirements is None and not use_venv:
        return PythonEnvironment(python)
    key = _key(archive, requirements, python, use_venv)
    home = (cache or user_cache("python")) / key
    async with _exclusive(home):
        if not (home / _COMPLETE).exists():
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            home.mkdir(parents=True)
            if use_venv:
                await _make_venv(name, python, home)
            if requirements is not None:
                await _install(name, python, home, requirements, use_venv)
            (home / _COMPLETE).touch()
    if use_venv:
        return PythonEnvironment(str(_venv_python(home)))
    return PythonEnvironment(python, [str(home / "packages")])


def _requirements(archive: Archive) -> Path | None:
    named = archive.manifest.model.requirements_file
    if not named:
        return None
    path = archive.directory / os.path.basename(named)
    if not path.is_file():
        raise InvalidModel(f"The archive has no {named}, which its manifest names as requirements.")
    return path


def _key(archive: Archive, requirements: Path | None, python: str, use_venv: bool) -> str:
    """Hash of all that determines an installation, the archive too where the file refers to it."""
    text = requirements.read_text("utf-8", "replace") if requirements else ""
    local = archive.digest if _LOCAL.search(text) else ""
    host = (platform.python_version(), platform.machine(), os.path.realpath(python))
    parts = ("2", *host, str(use_venv), text, local)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@asynccontextmanager
async def _exclusive(home: Path) -> AsyncIterator[None]:
    """One installation of a kind at a time, over all servers of this user."""
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(f"{home}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


async def _make_venv(name: str, python: str, home: Path) -> None:
    argv = [python, "-m", "venv", "--without-pip", str(home / "venv")]
    code, lines = await _run(argv, f"{name} venv")
    if code != 0:
        cause = _cause(lines)
        raise InvalidModel(f"Virtual environment creation failed for model {name}: {cause}")
    _, parents = await _run([python, "-c", _SITES], f"{name} venv")
    packages = next((home / "venv").glob("lib/python*/site-packages"))
    # The server's environment may itself be a virtual one, which --system-site-packages would skip;
    # a path alone would not bring what is installed in place there.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in parents]
    (packages / "marserve-parent.pth").write_text("".join(lines))


async def _install(name: str, python: str, home: Path, requirements: Path, use_venv: bool) -> None:
    pip = [python, "-m", "pip"]
    if use_venv:
        pip += ["--python", str(_venv_python(home))]
    argv = [*pip, "install", "--disable-pip-version-check", "--no-input", "--retries", "2"]
    # --no-compile: Python compiles what is imported, of a large package a small part.
    argv += ["--timeout", "15", "--no-compile", "-U", "-r", requirements.name]
    if use_venv:
        argv += ["--upgrade-strategy", "only-if-needed"]
    else:
        argv += ["--target", str(home / "packages")]
    logger.info("installing the packages of model %s", name)
    code, lines = await _run(argv, f"{name} pip", requirements.parent)
    if code != 0:
        hint = ""
        if any("connection" in line.lower() or "retrying" in line.lower() for line in lines):
            hint = " (the package index cannot be reached; install them beforehand and use useVenv)"
        text = f"Custom pip package installation failed for model {name}: {_cause(lines)}{hint}"
        raise InvalidModel(text)


async def _run(argv: Sequence[str], label: str, cwd: Path | None = None) -> tuple[int, list[str]]:
    """Runs a program; its output goes to the log, and is returned."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _PIP_LIMIT_S)
    except TimeoutError:
        return 1, [f"ERROR: not done after {_PIP_LIMIT_S:.0f} s"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = output.decode(errors="replace").splitlines()
    for line in lines:
        logger.info("%s: %s", label, line)
    return process.returncode or 0, lines


def _cause(lines: Sequence[str]) -> str:
    """The lines that say why, without where: paths are no business of the client."""
    errors = [line for line in lines if line.startswith(("ERROR", "error", "Error"))]
    chosen = errors or list(lines)
    text = " ".join(line.strip() for line in chosen[-_LAST_LINES:])
    return re.sub(r"(?<![\w:/])/[^\s'\"]+/", "", text) or "no reason was given"


def _venv_python(home: Path) -> Path:
    return home / "venv" / "bin" / "python"
