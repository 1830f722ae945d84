from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from marserve.archiver.errors import ArchiveError
from marserve.archiver.inspection import inspect_archive, verify_archive
from marserve.archiver.package import PackageSpec, package
from marserve.archiver.pt2 import pt2_problem
from marserve.archiver.repack import Changes, format_of, repack
from marserve.archiver.unpack import Archive, unpack, walk_files


@pytest.fixture
def archive(model: Path, tmp_path: Path) -> Archive:
    """An unpacked archive with a handler of its own, nested files, requirements and weights."""
    (model / "config.yaml").write_text("# why\nbatchSize: 2\n")
    (model / "requirements.txt").write_text("numpy\n")
    spec = PackageSpec(
        model_name="m",
        version="3",
        handler=f"{model}/handler.py:Handler",
        serialized_file=model / "weights.pt",
        config_file=model / "config.yaml",
        requirements_file=model / "requirements.txt",
        extra_files=(model / "data",),
        export_path=tmp_path / "packed",
    )
    return unpack(package(spec), tmp_path / "unpacked")


@pytest.mark.parametrize("name", ["new.mar", "new.tar.gz", "new"])
def test_a_copy_differs_in_what_was_changed_alone(
    archive: Archive, tmp_path: Path, name: str
) -> None:
    (tmp_path / "other.onnx").write_text("program")
    changes = Changes(
        config={"batchSize": 8},
        serialized_file="other.onnx",
        files={"other.onnx": tmp_path / "other.onnx"},
        removed=frozenset({"weights.pt"}),
    )

    target = repack(archive, changes, tmp_path / "out" / name)

    assert [] == verify_archive(target)
    contents = inspect_archive(target)
    names = {file.name for file in contents.files}
    before = {name for name, _ in walk_files(archive.directory)}
    assert before - {"weights.pt"} | {"other.onnx"} == names
    model = contents.manifest["model"]
    assert ("m", "3", "handler:Handler") == (
        model["modelName"],
        model["modelVersion"],
        model["handler"],
    )
    assert model["serializedFile"] == "other.onnx"
    assert model["requirementsFile"] == "requirements.txt"
    assert contents.config == {"batchSize": 8}
    assert [target.name] == [path.name for path in target.parent.iterdir()]


def test_an_existing_archive_is_replaced_whole_if_forced(archive: Archive, tmp_path: Path) -> None:
    changes = Changes(config=archive.config.raw, serialized_file="weights.pt")
    target = repack(archive, changes, tmp_path / "same")
    (target / "stray.txt").write_text("of before")

    with pytest.raises(ArchiveError, match="already exists"):
        repack(archive, changes, target)
    repack(archive, changes, target, force=True)

    assert not (target / "stray.txt").exists()
    assert yaml.safe_load((target / "config.yaml").read_text()) == {"batchSize": 2}


def test_what_is_missing_afterwards_is_an_error_and_nothing_is_left(
    archive: Archive, tmp_path: Path
) -> None:
    changes = Changes(config={}, serialized_file="weights.pt", removed=frozenset({"weights.pt"}))

    with pytest.raises(ArchiveError, match=r"--serialized-file: file not found: .*weights\.pt"):
        repack(archive, changes, tmp_path / "out" / "new.mar")
    assert [] == list((tmp_path / "out").iterdir())


def test_the_format_is_told_by_the_name(tmp_path: Path) -> None:
    assert format_of(Path("a/b.mar")) == "default"
    assert format_of(Path("b.tar.gz")) == "tgz"
    assert format_of(Path("b")) == "no-archive"
    with pytest.raises(ArchiveError, match=r"ends in \.mar or \.tar\.gz, got b\.zip"):
        format_of(Path("b.zip"))


@pytest.mark.parametrize(
    ("member", "compiled", "program"),
    [
        ("m/data/aotinductor/model/x.so", None, "expected save_mode: aot_inductor"),
        ("m/models/model.json", "expected save_mode: exported", None),
        ("m/else", "holds neither", "holds neither"),
    ],
)
def test_what_a_pt2_file_holds(
    tmp_path: Path, member: str, compiled: str | None, program: str | None
) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, json.dumps({}))

    for right, found in (
        (compiled, pt2_problem(path, "aot_inductor")),
        (program, pt2_problem(path, "exported")),
    ):
        assert right is None if found is None else (right or "nothing") in found


def test_a_pt2_file_is_a_zip_archive(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"no zip")

    assert "is no zip archive" in (pt2_problem(tmp_path / "m.pt2", "exported") or "")
