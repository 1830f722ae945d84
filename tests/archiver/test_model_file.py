"""Files that are models themselves, and files that only look so; none needs PyTorch here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from marserve.archiver.errors import ArchiveError
from marserve.archiver.model_file import is_model_file, open_model_file


def write(path: Path, *members: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for member in members:
            file.writestr(f"{path.stem}/{member}", b"")
    return path


@pytest.mark.parametrize(
    ("name", "model"),
    [("a.pt", True), ("a.pt2", True), ("a.onnx", True), ("a.pth", True), ("a.mar", False)],
)
def test_files_are_told_by_their_names(name: str, model: bool) -> None:
    assert model is is_model_file(Path(name))


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("traced.pt", ["data.pkl", "constants.pkl"]),
        ("program.pt2", ["models/model.json"]),
        ("package.pt2", ["data/aotinductor/model/x.so"]),
        ("graph.onnx", []),
    ],
)
def test_a_program_becomes_an_archive_of_the_base_handler(
    tmp_path: Path, name: str, members: list[str]
) -> None:
    path = write(tmp_path / name, *members)
    archive = open_model_file(path, tmp_path / "target")
    model = archive.manifest.model

    assert (path.stem, "1.0", "base_handler", name) == (
        model.model_name,
        model.model_version,
        model.handler,
        model.serialized_file,
    )
    assert path.read_bytes() == (archive.directory / name).read_bytes()
    assert 0o700 == archive.directory.stat().st_mode & 0o777


def test_another_file_of_the_same_name_has_another_digest(tmp_path: Path) -> None:
    path = write(tmp_path / "traced.pt", "constants.pkl")
    before = open_model_file(path, tmp_path / "before").digest
    write(path, "constants.pkl", "more")

    assert before != open_model_file(path, tmp_path / "after").digest


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "weights.safetensors", "no_zip.pt"])
def test_weights_alone_are_refused_with_both_remedies(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"no zip")
    if name == "weights.pt":
        write(path, "data.pkl", "version")

    with pytest.raises(ArchiveError, match="holds weights alone") as caught:
        open_model_file(path, tmp_path / "target")
    assert f"--serialized-file {name} --handler base_handler" in str(caught.value)
    assert "torch.export.save" in str(caught.value)
    assert not (tmp_path / "target").exists()


def test_a_pt2_file_of_another_kind_and_a_name_that_no_model_has_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ArchiveError, match="holds neither a program"):
        open_model_file(write(tmp_path / "other.pt2", "x"), tmp_path / "target")
    with pytest.raises(ArchiveError, match="name of the file"):
        open_model_file(write(tmp_path / "a b.onnx"), tmp_path / "target")
