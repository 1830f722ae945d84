"""The package as it is shipped: the import view, what a wheel holds, and what importing costs."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import marserve

ROOT = Path(__file__).parent.parent
FOLDERS = ("archiver", "frontend", "handlers", "worker")
SHIPPED = {".py", ".pyi", ".proto", ".yaml", ".typed"}


def tracked(*folders: str) -> list[str]:
    """Files below these folders that git tracks, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.splitlines() if (ROOT / name).exists()]


def expected_files() -> set[str]:
    """What the package consists of, under the names that it is installed by."""
    files = {f"marserve/{name}" for name in tracked(*FOLDERS) if Path(name).suffix in SHIPPED}
    return files | {"marserve/__init__.py", "marserve/py.typed"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built from a copy: the checkout stays as it is."""
    work = tmp_path_factory.mktemp("build")
    checkout = work / "checkout"
    for name in tracked("pyproject.toml", "README.md", "LICENSE", "src", *FOLDERS):
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        else:
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return checkout / "dist"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_import_view_links_to_the_folder(folder: str) -> None:
    link = ROOT / "src" / "marserve" / folder

    assert Path("../..") / folder == link.readlink()
    assert (ROOT / folder).resolve() == link.resolve()


@pytest.mark.parametrize("name", [*FOLDERS, "ts"])
def test_general_names_are_not_importable(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True
    )

    assert run.returncode == 1
    assert f"ModuleNotFoundError: No module named '{name}'" in run.stderr


def test_the_wheel_holds_every_file_of_the_package_and_no_other(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert expected_files() == names


def test_the_wheel_carries_license_and_commands(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist()}
        commands = wheel.read(names["entry_points.txt"]).decode()

    assert "licenses/LICENSE" in names
    assert "archive-model = marserve.archiver.cli:main" in commands
    assert "serve = marserve.frontend.cli:main" in commands


def test_the_sdist_holds_real_files(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        members = {member.name.partition("/")[2]: member for member in sdist.getmembers()}

    assert expected_files() <= {name.removeprefix("src/") for name in members}
    assert [] == [name for name, member in members.items() if member.issym() or member.islnk()]


def test_the_installed_version_is_the_package_version() -> None:
    assert marserve.__version__ == importlib.metadata.version("marserve")


@pytest.mark.parametrize("module", ["marserve.frontend.cli", "marserve.archiver.cli"])
def test_commands_never_import_the_heavy_libraries(module: str, tmp_path: Path) -> None:
    code = f"import sys, {module}; print({{'torch', 'transformers'}} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )

    assert "set()" == run.stdout.strip()


def test_documents_link_to_files_that_exist() -> None:
    links = [
        (name, link)
        for name in tracked("*.md")
        for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text())
        if "://" not in link
    ]

    assert [] == [pair for pair in links if not (ROOT / pair[0]).parent.joinpath(pair[1]).exists()]
