"""Configurations that a Triton Python model completes itself, in a process that then ends."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marserve.archiver.errors import MarserveError
from marserve.archiver.triton_config import FILE_NAME, TritonConfig, completed, load_triton_config
from marserve.archiver.triton_folder import KEY, reconfigured
from marserve.frontend.errors import InvalidModel
from marserve.frontend.worker_environment import environment

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.dependencies import PythonEnvironment

MODULE = "marserve.worker.auto_complete"
_LIMIT_S = 120.0
_SHOWN_CHARS = 500


async def completed_by_model(
    archive: Archive, python: PythonEnvironment, config: ServerConfig
) -> Archive:
    """Returns an archive with the configuration that its model has completed.

    Args:
        archive: Of any kind; only models of Triton's Python backend that define
            ``auto_complete_config`` are run.
        python: What runs the model.
        config: Of the server; says which variables of the environment the model must not see.

    Raises:
        InvalidModel: If the model fails, or what it says cannot be served.
    """
    section: dict[str, Any] = archive.config.raw.get(KEY, {})
    if section.get("backend") != "python":
        return archive
    path = archive.directory / section["file"]
    if not await asyncio.to_thread(_completes, path):
        return archive
    name = archive.manifest.model.model_name
    plain = await _ask(name, archive.directory, section, python, environment(config, python, 1))
    try:
        plain = completed(plain).plain
        known = archive.directory / FILE_NAME  # whose lines errors and warnings name
        given = load_triton_config(known) if known.is_file() else TritonConfig({})
        return reconfigured(archive, replace(given, plain=plain))
    except MarserveError as error:
        raise InvalidModel(f"{name}: auto_complete_config: {error}") from None


def _completes(path: Path) -> bool:
    """Whether a model's code defines the method; the code is read, not run."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # the worker reports it
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "auto_complete_config"
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for node in ast.walk(each)
    )


async def _ask(
    name: str,
    folder: Path,
    section: dict[str, Any],
    python: PythonEnvironment,
    env: dict[str, str],
) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        python.executable or sys.executable,
        "-P",
        "-m",
        MODULE,
        str(folder),
        section["file"],
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        question = json.dumps(section["config"]).encode()
        answer, _ = await asyncio.wait_for(process.communicate(question), _LIMIT_S)
    except TimeoutError:
        raise InvalidModel(f"{name}: auto_complete_config took more than {_LIMIT_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise InvalidModel(f"{name}: auto_complete_config ended without an answer") from None
    if "error" in found:
        raise InvalidModel(f"{name}: auto_complete_config: {str(found['error'])[:_SHOWN_CHARS]}")
    config: dict[str, Any] = found["config"]
    return config
