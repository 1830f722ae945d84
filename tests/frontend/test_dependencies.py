from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from marserve.archiver.manifest import Manifest
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.unpack import Archive
from marserve.frontend.config import ServerConfig
from marserve.frontend.dependencies import PythonEnvironment, prepare_python
from marserve.frontend.errors import InvalidModel

WHEEL = "tiny_package-1.0-py3-none-any.whl"


def write_wheel(directory: Path, content: str = "VALUE = 42\n") -> None:
    info = "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(directory / WHEEL, "w") as wheel:
        wheel.writestr("tiny_package.py", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def archive(
    directory: Path, digest: str = "d1", requirements: str = "", venv: bool = False
) -> Archive:
    directory.mkdir(exist_ok=True)
    model = {"modelName": "m", "handler": "h.py", "modelVersion": "1.0"}
    if requirements:
        (directory / "requirements.txt").write_text(requirements)
        model["requirementsFile"] = "requirements.txt"
    manifest = Manifest.from_json(json.dumps({"runtime": "python", "model": model}).encode())
    return Archive(directory, manifest, parse_model_config({"useVenv": venv}), digest)


def config(tmp_path: Path, install: bool = True) -> ServerConfig:
    return ServerConfig(model_store=tmp_path, install_py_dep_per_model=install)


def run(python: PythonEnvironment, code: str) -> str:
    env = {"PYTHONPATH": ":".join(python.path)}
    done = subprocess.run(
        [python.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


async def test_nothing_to_do(tmp_path: Path) -> None:
    plain = archive(tmp_path / "a")
    switched_off = archive(tmp_path / "b", requirements=f"./{WHEEL}")

    assert await prepare_python(plain, config(tmp_path)) == PythonEnvironment(sys.executable)
    found = await prepare_python(switched_off, config(tmp_path, install=False), tmp_path / "cache")
    assert found == PythonEnvironment(sys.executable)
    assert not (tmp_path / "cache").exists()


async def test_requirements_are_installed_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "marserve.frontend.dependencies")
    model = archive(tmp_path / "m", requirements=f"./{WHEEL}\n")
    write_wheel(model.directory)
    both = await asyncio.gather(
        *(prepare_python(model, config(tmp_path), tmp_path / "cache") for _ in range(2))
    )

    assert both[0] == both[1]
    assert run(both[0], "import tiny_package; print(tiny_package.VALUE)") == "42"
    assert caplog.text.count("Successfully installed tiny-package-1.0") == 1


async def test_local_files_count_by_the_archive(tmp_path: Path) -> None:
    found = []
    for digest, value in (("d1", "1"), ("d2", "2")):
        model = archive(tmp_path / digest, digest, f"./{WHEEL}")
        write_wheel(model.directory, f"VALUE = {value}\n")
        found.append(await prepare_python(model, config(tmp_path), tmp_path / "cache"))

    values = [run(each, "import tiny_package; print(tiny_package.VALUE)") for each in found]
    assert values == ["1", "2"]


async def test_virtual_environment_sees_the_servers_packages(tmp_path: Path) -> None:
    model = archive(tmp_path / "m", requirements=f"./{WHEEL}", venv=True)
    write_wheel(model.directory)
    python = await prepare_python(model, config(tmp_path), tmp_path / "cache")
    code = (
        "import tiny_package, msgspec, marserve.worker, sys; print(tiny_package.VALUE, sys.prefix)"
    )

    assert python.path == []
    assert run(python, code) == f"42 {Path(python.executable).parent.parent}"
    assert python.executable.startswith(str(tmp_path / "cache"))


async def test_virtual_environment_without_requirements(tmp_path: Path) -> None:
    model = archive(tmp_path / "m", venv=True)
    python = await prepare_python(model, config(tmp_path, install=False), tmp_path / "cache")

    assert run(python, "import msgspec; print(1)") == "1"


async def test_failure_names_the_cause_and_is_not_kept(tmp_path: Path) -> None:
    model = archive(tmp_path / "m", requirements="./missing-1.0-py3-none-any.whl")
    message = "Custom pip package installation failed for model m: .*missing-1.0-py3-none-any.whl"

    with pytest.raises(InvalidModel, match=message) as error:
        await prepare_python(model, config(tmp_path), tmp_path / "cache")
    assert str(tmp_path) not in error.value.message
    (model.directory / "requirements.txt").write_text("./missing-1.0-py3-none-any.whl\n# again")
    with pytest.raises(InvalidModel):
        await prepare_python(model, config(tmp_path), tmp_path / "cache")


async def test_index_that_cannot_be_reached(tmp_path: Path) -> None:
    requirements = "--index-url http://127.0.0.1:9/simple\nno-such-package-here==1.0"
    model = archive(tmp_path / "m", requirements=requirements)

    with pytest.raises(InvalidModel, match="the package index cannot be reached"):
        await prepare_python(model, config(tmp_path), tmp_path / "cache")


async def test_missing_requirements_file(tmp_path: Path) -> None:
    model = archive(tmp_path / "m", requirements="x")
    (model.directory / "requirements.txt").unlink()

    with pytest.raises(InvalidModel, match="has no requirements"):
        await prepare_python(model, config(tmp_path), tmp_path / "cache")


async def test_names_are_never_run_by_a_shell(tmp_path: Path) -> None:
    model = archive(tmp_path / "$(touch owned); m", requirements="./x.whl; touch owned2")

    with pytest.raises(InvalidModel):
        await prepare_python(model, config(tmp_path), tmp_path / "cache")
    assert not list(tmp_path.rglob("owned*"))
