"""Our archives against those of the real torch-model-archiver, both ways."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marserve.archiver.unpack import Archive, open_directory, unpack

pytestmark = pytest.mark.peer

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MANIFEST = "MAR-INF/MANIFEST.json"
SUFFIX = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}


def arguments(model: Path, archive_format: str, handler: str) -> list[object]:
    return [
        *("--model-name", "my_model", "-v", "1.10", "--handler", handler),
        *("--serialized-file", model / "weights.pt", "--model-file", model / "net.py"),
        *("--extra-files", f"{model}/index_to_name.json,{model}/data,{model}/ent*.py"),
        *("--requirements-file", model / "requirements.txt"),
        *("--config-file", model / "model-config.yaml"),
        *("--archive-format", archive_format),
    ]


def contents(path: Path) -> dict[str, bytes]:
    """Reads an archive by TorchServe's rules: a zip as it is, a tar without its prefix."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    if path.suffix == ".mar":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    found = {}
    with tarfile.open(path) as tar:
        for info in tar:
            file = tar.extractfile(info)
            if file:
                prefix, _, name = info.name.partition("/")
                assert prefix == "my_model"
                found[name] = file.read()
    return found


def opened(path: Path, target: Path) -> Archive:
    return open_directory(path) if path.is_dir() else unpack(path, target)


def both(
    tmp_path: Path, archive_model: Run, torch_model_archiver: Run, args: list[object], suffix: str
) -> tuple[Path, Path]:
    paths = []
    for name, run in (("ours", archive_model), ("theirs", torch_model_archiver)):
        (tmp_path / name).mkdir()
        result = run(*args, "--export-path", tmp_path / name)
        assert result.returncode == 0, result.stderr
        paths.append(tmp_path / name / f"my_model{suffix}")
    return paths[0], paths[1]


@pytest.mark.parametrize("archive_format", SUFFIX)
@pytest.mark.parametrize("handler", ["handler.py", "handler", "entry:entry", "image_classifier"])
def test_the_same_flags_give_the_same_archive(
    model: Path,
    tmp_path: Path,
    archive_model: Run,
    torch_model_archiver: Run,
    archive_format: str,
    handler: str,
) -> None:
    source = handler if handler == "image_classifier" else str(model / handler)
    args = arguments(model, archive_format, source)
    suffix = SUFFIX[archive_format]
    ours, theirs = both(tmp_path, archive_model, torch_model_archiver, args, suffix)
    our_files, their_files = contents(ours), contents(theirs)
    our_manifest = json.loads(our_files.pop(MANIFEST))
    their_manifest = json.loads(their_files.pop(MANIFEST))

    assert our_files == their_files
    assert our_manifest["model"] == their_manifest["model"]
    assert list(our_manifest)[:4] == list(their_manifest)
    assert our_manifest["runtime"] == their_manifest["runtime"]
    assert len(our_manifest["createdOn"]) == len(their_manifest["createdOn"])


@pytest.mark.parametrize("archive_format", SUFFIX)
def test_we_read_what_the_real_tool_packed(
    model: Path,
    tmp_path: Path,
    archive_model: Run,
    torch_model_archiver: Run,
    archive_format: str,
) -> None:
    args = arguments(model, archive_format, str(model / "entry:entry"))
    ours, theirs = both(tmp_path, archive_model, torch_model_archiver, args, SUFFIX[archive_format])
    archive = opened(theirs, tmp_path / "a")
    own = opened(ours, tmp_path / "b")

    assert archive.manifest.model == own.manifest.model
    assert archive.manifest.model.handler == "entry:entry"
    assert archive.manifest.model.model_version == "1.10"
    assert archive.manifest.digests == {}
    assert archive.config == own.config
    assert archive.config.max_workers == 2
    for name in ("weights.pt", ".hidden", "deep/b.txt", "index_to_name.json", "entry.py"):
        assert (archive.directory / name).read_bytes() == (own.directory / name).read_bytes()
    assert archive_model("verify", theirs).returncode == 0
    assert archive_model("inspect", theirs).returncode == 0


def test_compression_is_as_the_format_says(
    model: Path, tmp_path: Path, archive_model: Run, torch_model_archiver: Run
) -> None:
    for archive_format, method in (("default", 8), ("zip-store", 0)):
        args = arguments(model, archive_format, str(model / "handler.py"))
        folder = tmp_path / archive_format
        folder.mkdir()
        for path in both(folder, archive_model, torch_model_archiver, args, ".mar"):
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
                assert {info.compress_type for info in infos} == {method}
                assert infos[-1].filename == MANIFEST


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["--handler", "base_handler"], 2),
        (["--model-name", "m", "--version", "1"], 2),
        (["--model-name", "m", "--version", "1", "--handler", "x", "--archive-format", "rar"], 2),
        (["--model-name", "m", "--version", "1", "--handler", "x", "--runtime", "java"], 2),
        (["--model-name", "m", "--version", "1", "--handler"], 2),
        (["--model-name", "m!", "--version", "1", "--handler", "base_handler"], 1),
        (["--model-name", "m", "--version", "1", "--handler", "missing.py"], 1),
        (["--model-name", "m", "--version", "1", "--handler", "missing"], 1),
        (["--model-n", "m", "--vers", "1", "--hand", "base_handler", "--extra", "missing"], 1),
        (["--model-n", "m", "--vers", "1", "--hand", "base_handler", "--arch=tgz"], 0),
        (["--model-name", "m", "-v", "1", "--handler", "base_handler", "--export-path", "a"], 0),
        (["--model-name", "m", "-v", "1", "--handler", "base_handler", "--extra-files", "*.z"], 0),
        (["--help"], 0),
    ],
)
def test_exit_statuses_are_those_of_the_real_tool(
    model: Path, archive_model: Run, torch_model_archiver: Run, args: list[str], status: int
) -> None:
    ours = archive_model(*args)
    for file in Path().rglob("m.*"):
        file.unlink()

    assert ours.returncode == status, ours.stderr
    assert torch_model_archiver(*args).returncode == status
    assert "Traceback" not in ours.stderr
    assert status == 0 or ours.stderr.strip()


def test_an_existing_archive_is_replaced_only_by_force(
    model: Path, archive_model: Run, torch_model_archiver: Run
) -> None:
    args = ["--model-name", "m", "--version", "1", "--handler", "base_handler"]
    for run in (torch_model_archiver, archive_model):
        Path("m.mar").write_text("old")

        assert run(*args).returncode == 1
        assert Path("m.mar").read_text() == "old"
        assert run(*args, "-f").returncode == 0
        assert zipfile.is_zipfile("m.mar")


def test_a_directory_is_merged_by_force(
    model: Path, archive_model: Run, torch_model_archiver: Run
) -> None:
    args = ["--model-name", "m", "--version", "1", "--handler", "base_handler"]
    args += ["--archive-format", "no-archive", "--force"]
    for name, run in (("theirs", torch_model_archiver), ("ours", archive_model)):
        Path(name, "m").mkdir(parents=True)
        Path(name, "m", "kept").touch()
        result = run(*args, "--export-path", name)

        assert result.returncode == 0, result.stderr
        assert sorted(contents(Path(name, "m"))) == [MANIFEST, "kept"]
    assert archive_model("verify", "ours/m").returncode == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:Exception ignored in")
def test_the_python_api_of_the_real_tool_packs_what_we_read(model: Path, tmp_path: Path) -> None:
    from model_archiver import ModelArchiverConfig
    from model_archiver.model_packaging import generate_model_archive

    config: Any = ModelArchiverConfig(
        model_name="api",
        handler=str(model / "handler.py"),
        version="3",
        serialized_file=str(model / "weights.pt"),
        export_path=str(tmp_path),
    )
    generate_model_archive(config)
    archive = unpack(tmp_path / "api.mar", tmp_path / "target")

    assert archive.manifest.model.model_version == "3"
    assert archive.manifest.archiver_version == "0.12.0"
