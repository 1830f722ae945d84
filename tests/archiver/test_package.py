from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ArchiveError
from marserve.archiver.package import PackageSpec, package
from marserve.archiver.spec import resolve_handler
from marserve.archiver.unpack import open_directory, unpack

FORMATS = ["default", "zip-store", "tgz", "no-archive"]


def spec_of(model: Path, **changes: Any) -> PackageSpec:
    spec = PackageSpec(
        model_name="m",
        handler=str(model / "handler.py"),
        serialized_file=model / "weights.pt",
        extra_files=f"{model}/index_to_name.json, {model}/data",
        config_file=model / "model-config.yaml",
    )
    return dataclasses.replace(spec, **changes)


def tree(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("archive_format", FORMATS)
def test_what_was_packed_is_unpacked(model: Path, tmp_path: Path, archive_format: str) -> None:
    path = package(spec_of(model, archive_format=archive_format))
    archive = open_directory(path) if path.is_dir() else unpack(path, tmp_path / "target")

    assert archive.manifest.model.model_name == "m"
    assert archive.config.max_workers == 2
    assert (archive.directory / "weights.pt").read_bytes() == (model / "weights.pt").read_bytes()
    assert (archive.directory / "deep/b.txt").read_text() == "b"
    expected = hashlib.sha256((model / "weights.pt").read_bytes()).hexdigest()
    assert archive.manifest.digests["weights.pt"] == expected
    assert list(archive.manifest.digests) == sorted(archive.manifest.digests)


@pytest.mark.parametrize("archive_format", FORMATS)
def test_the_same_input_gives_the_same_bytes(
    model: Path, archive_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tree(package(spec_of(model, archive_format=archive_format)))
    for file in model.rglob("*"):
        os.utime(file, (1_600_000_000, 1_600_000_000))
        file.chmod(0o700)
    Path("elsewhere").mkdir()
    again = package(spec_of(model, archive_format=archive_format, export_path=Path("elsewhere")))

    assert tree(again) == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = package(spec_of(model, archive_format=archive_format, force=True))
    assert tree(dated) != first


def test_the_date_comes_from_the_environment(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    archive = unpack(package(spec_of(model)), tmp_path / "a")

    assert archive.manifest.created_on == "14/11/2023 22:13:20"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ArchiveError, match="SOURCE_DATE_EPOCH: expected seconds"):
        package(spec_of(model, force=True))


@pytest.mark.parametrize(
    ("handler", "name", "file"),
    [
        ("handler.py", "handler.py", "handler.py"),
        ("handler", "handler", "handler.py"),
        ("entry:entry", "entry:entry", "entry.py"),
        ("entry.py:entry", "entry:entry", "entry.py"),
    ],
)
def test_a_handler_is_a_file_with_or_without_an_entry(
    model: Path, handler: str, name: str, file: str
) -> None:
    found = resolve_handler(str(model / handler))

    assert (found.name, found.source) == (name, model / file)


def test_a_built_in_handler_has_no_file() -> None:
    assert resolve_handler("transformer_handler").source is None
    assert resolve_handler("image_classifier").source is None
    assert resolve_handler("BaseHandler", "LSP").source is None
    with pytest.raises(ArchiveError, match="did you mean the built-in image_classifier"):
        resolve_handler("image_clasifier")


def test_a_cpp_handler_is_a_library(model: Path) -> None:
    (model / "lib.so").touch()

    assert resolve_handler(f"{model}/lib:Class", "LSP").source == model / "lib.so"
    assert resolve_handler(f"{model}/lib:Class", "LSP").name == "lib:Class"


def test_two_files_for_one_name_are_an_error_unless_they_are_equal(model: Path) -> None:
    (model / "data/weights.pt").write_text("other")
    with pytest.raises(ArchiveError, match=r"weights\.pt and .*data/weights\.pt differ"):
        package(spec_of(model))
    (model / "data/weights.pt").write_bytes((model / "weights.pt").read_bytes())

    assert package(spec_of(model)).is_file()


def test_names_that_differ_by_case_alone_are_an_error(model: Path) -> None:
    (model / "data/Weights.pt").write_text("other")
    with pytest.raises(ArchiveError, match="by case alone"):
        package(spec_of(model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_name": "a/b"}, "model name 'a/b' is not allowed"),
        ({"model_name": ".."}, "is not allowed"),
        ({"version": ""}, "--version: expected"),
        ({"runtime": "java"}, "--runtime: expected one of python, python3, LSP, got 'java'"),
        ({"archive_format": "rar"}, "--archive-format: expected one of"),
        ({"handler": "gone.py"}, r"--handler: file not found: gone\.py"),
        ({"serialized_file": Path("gone.pt")}, r"--serialized-file: file not found: gone\.pt"),
        ({"model_file": Path("/")}, "--model-file: not a file: /"),
        ({"extra_files": "gone"}, "--extra-files: file not found: gone"),
        ({"export_path": Path(__file__)}, "--export-path: .* is not a directory"),
    ],
)
def test_an_error_names_the_flag(model: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        package(spec_of(model, **changes))
    assert list(Path().iterdir()) == []


def test_extra_files_may_be_a_list_and_a_pattern(model: Path, tmp_path: Path) -> None:
    (model / "x,y [1].txt").write_text("odd")
    spec = spec_of(model, extra_files=(f"{model}/*.json", model / "x,y [1].txt"))
    archive = unpack(package(spec), tmp_path / "a")

    assert {"index_to_name.json", "x,y [1].txt"} < set(archive.manifest.digests)


def test_links_are_followed_but_not_in_a_circle(model: Path, tmp_path: Path) -> None:
    (model / "data/link.txt").symlink_to(model / "data/a.txt")
    archive = unpack(package(spec_of(model)), tmp_path / "a")

    assert (archive.directory / "link.txt").read_text() == "a"
    (model / "data/up").symlink_to(model / "data")
    with pytest.raises(ArchiveError, match="link to a directory above"):
        package(spec_of(model, force=True))


def test_an_archive_packed_again_does_not_hold_itself(tmp_path: Path, model: Path) -> None:
    spec = spec_of(model, extra_files=(model / "data",), export_path=model / "data")
    first = package(spec).read_bytes()

    assert package(dataclasses.replace(spec, force=True)).read_bytes() == first


def test_an_unpacked_archive_can_be_packed_again(tmp_path: Path, model: Path) -> None:
    path = package(spec_of(model))
    unpacked = unpack(path, tmp_path / "target").directory
    spec = PackageSpec(
        model_name="m",
        handler=str(unpacked / "handler.py"),
        serialized_file=unpacked / "weights.pt",
        config_file=unpacked / "model-config.yaml",
        extra_files=(unpacked,),
        export_path=tmp_path,
    )

    assert package(spec).read_bytes() == path.read_bytes()


class Stop(BaseException):
    """Like a Ctrl-C."""


@pytest.mark.parametrize("archive_format", FORMATS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_broken_run_leaves_everything_as_it_was(
    model: Path, archive_format: str, exists: bool
) -> None:
    spec = spec_of(model, archive_format=archive_format, force=True)
    if exists:
        package(dataclasses.replace(spec, version="old"))
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}

    def stop(done_bytes: int, total_bytes: int) -> None:
        if done_bytes > total_bytes / 2:
            raise Stop

    with pytest.raises(Stop):
        package(spec, stop)
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


def test_a_file_that_changes_meanwhile_is_noticed(model: Path) -> None:
    def grow(done_bytes: int, total_bytes: int) -> None:
        with (model / "weights.pt").open("ab") as file:
            file.write(b"more")

    for archive_format in FORMATS:
        with pytest.raises(ArchiveError, match="changed while it was packed"):
            package(spec_of(model, archive_format=archive_format), grow)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_killed_command_leaves_nothing(model: Path, number: signal.Signals) -> None:
    (model / "big.pt").write_bytes(os.urandom(200_000_000))
    process = subprocess.Popen(
        [
            *(f"{Path(sys.executable).parent}/archive-model", "--model-name", "m", "-v", "1"),
            *("--handler", f"{model}/handler.py", "--serialized-file", f"{model}/big.pt"),
        ],
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background makes their children deaf to SIGINT.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    seen = threading.Event()
    while process.poll() is None and not seen.is_set():
        if any(file.stat().st_size > 1_000_000 for file in Path().glob(".m.mar.*.tmp")):
            seen.set()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)

    assert seen.is_set()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in stderr
    assert list(Path().iterdir()) == []


def test_memory_does_not_grow_with_the_weights(model: Path, tmp_path: Path) -> None:
    size_bytes = 200_000_000
    with (model / "big.pt").open("wb") as file:
        file.truncate(size_bytes)
    spec = spec_of(model, serialized_file=model / "big.pt")
    tracemalloc.start()
    try:
        for archive_format in ("zip-store", "tgz", "no-archive"):
            package(dataclasses.replace(spec, archive_format=archive_format, force=True))
        unpack(Path("m.mar"), tmp_path / "target")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 20_000_000


def test_a_member_beyond_4_gb_is_packed_and_read(model: Path, tmp_path: Path) -> None:
    size_bytes = (4 << 30) + 5
    if os.environ.get("MARSERVE_SLOW_TESTS") != "1":
        pytest.skip("set MARSERVE_SLOW_TESTS=1: needs 9 GB of disk")
    with (model / "big.pt").open("wb") as file:
        file.truncate(size_bytes)
    path = package(spec_of(model, serialized_file=model / "big.pt", archive_format="zip-store"))

    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("big.pt").file_size == size_bytes
    directory = unpack(path, tmp_path / "target").directory
    assert (directory / "big.pt").stat().st_size == size_bytes
    for large in (model / "big.pt", path, directory / "big.pt"):
        large.unlink()  # pytest would keep them


NAMES = st.text(alphabet="aäB._- ", min_size=1, max_size=4).filter(lambda name: name.strip("."))


@settings(max_examples=40, deadline=None)
@given(
    files=st.dictionaries(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=5
    ),
    archive_format=st.sampled_from(FORMATS),
)
def test_any_tree_is_packed_whole_or_not_at_all(
    files: dict[str, bytes], archive_format: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "data").mkdir()
    for name, data in files.items():
        with contextlib.suppress(OSError):  # a file and a directory of one name
            (root / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "data" / name).write_bytes(data)
    on_disk = {
        path.relative_to(root / "data").as_posix(): path.read_bytes()
        for path in (root / "data").rglob("*")
        if path.is_file()
    }
    stored = {
        name: data
        for name, data in on_disk.items()
        if not any(part.startswith(".") for part in name.split("/")[:-1])
    }
    spec = PackageSpec(
        model_name="m",
        handler="base_handler",
        extra_files=(root / "data",),
        export_path=root,
        archive_format=archive_format,
    )
    try:
        path = package(spec)
    except ArchiveError as error:
        assert "by case alone" in str(error)  # noqa: PT017
        assert [child.name for child in root.iterdir()] == ["data"]
        return
    archive = open_directory(path) if path.is_dir() else unpack(path, root / "target")
    found = {name: (archive.directory / name).read_bytes() for name in archive.manifest.digests}

    assert found == stored


def test_progress_reaches_the_whole(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    package(spec_of(model), lambda done, total: seen.append((done, total)))

    assert seen[-1][0] == seen[-1][1] > 100_000


def test_the_archive_is_readable_like_any_other_file(model: Path) -> None:
    other = Path("other")
    other.touch()

    assert package(spec_of(model)).stat().st_mode == other.stat().st_mode
