"""Archives written: the same input gives the same bytes, and a broken run leaves nothing behind.

Order, times, owners and modes of the members are fixed; ``createdOn`` is ``SOURCE_DATE_EPOCH`` if
that is set and the zip format's first day otherwise. Contents are streamed and hashed on their way,
so the manifest with the digests is the last member, as TorchServe has it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from marserve import __version__
from marserve.archiver.checks import check_files
from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import MANIFEST_PATH, Manifest, ManifestModel
from marserve.archiver.output import created_on, new_directory, new_file
from marserve.archiver.sources import gather
from marserve.archiver.spec import Handler, PackageSpec, resolve_handler
from marserve.archiver.writers import DirectoryWriter, TarWriter, Writer, ZipWriter

__all__ = ["PackageSpec", "Progress", "package"]

Progress = Callable[[int, int], object]
"""Called with the bytes done and the bytes in all."""

_log = logging.getLogger(__name__)


def package(spec: PackageSpec, progress: Progress | None = None) -> Path:
    """Packs a model.

    Args:
        spec: What to pack.
        progress: Told of every megabyte.

    Returns:
        The archive: a file, or a directory for the format ``no-archive``.

    Raises:
        ArchiveError: If something is missing or wrong; nothing was written then.
    """
    spec.validate()
    handler = resolve_handler(spec.handler, spec.runtime)
    _refuse_existing(spec)
    files = gather(spec, handler)
    manifest = _manifest(spec, handler)
    if spec.check:
        report = check_files(files, manifest)
        for warning in report.warnings:
            _log.warning("%s", warning)
        report.raise_problems()
    _make_export_path(Path(spec.export_path))
    with _opened(spec) as writer:
        _fill(writer, files, manifest, progress or _silent)
    return spec.target


def _refuse_existing(spec: PackageSpec) -> None:
    target, directory = spec.target, spec.archive_format == "no-archive"
    if target.exists() and not spec.force:
        raise ArchiveError(f"{target} already exists: give --force/-f to replace it")
    if target.exists() and target.is_dir() != directory:
        kind = "not a directory" if directory else "a directory"
        raise ArchiveError(f"{target} exists and is {kind}: remove it first")


def _make_export_path(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ArchiveError(f"--export-path: {path} exists but is not a directory")
    if not path.exists():
        _log.warning("--export-path: %s does not exist, so it is made", path)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise ArchiveError(f"--export-path: {path}: {error.strerror}") from error


def _manifest(spec: PackageSpec, handler: Handler) -> Manifest:
    def name(path: Path | None) -> str | None:
        return None if path is None else Path(path).name

    model = ManifestModel(
        model_name=spec.model_name,
        serialized_file=name(spec.serialized_file),
        handler=handler.name,
        model_file=name(spec.model_file),
        model_version=spec.version,
        requirements_file=name(spec.requirements_file),
        config_file=name(spec.config_file),
    )
    return Manifest(
        created_on=created_on(),
        runtime=spec.runtime,
        model=model,
        archiver_version=f"marserve {__version__}",
    )


def _fill(
    writer: Writer, files: Mapping[str, Path], manifest: Manifest, progress: Progress
) -> None:
    total_bytes = sum(path.stat().st_size for path in files.values())
    done_bytes = 0

    def advance(count: int) -> None:
        nonlocal done_bytes
        done_bytes += count
        progress(done_bytes, total_bytes)

    digests = {name: writer.add(name, path, advance) for name, path in files.items()}
    writer.add_bytes(MANIFEST_PATH, manifest.with_digests(digests).to_json())


def _silent(done_bytes: int, total_bytes: int) -> None:
    """Reports no progress."""


@contextlib.contextmanager
def _opened(spec: PackageSpec) -> Iterator[Writer]:
    try:
        if spec.archive_format == "no-archive":
            with new_directory(spec.target) as directory:
                yield DirectoryWriter(directory)
        else:
            with new_file(spec.target) as file, _container(spec, file) as writer:
                yield writer
    except OSError as error:
        where = error.filename or spec.target
        raise ArchiveError(f"{where}: {error.strerror or error}") from error


def _container(spec: PackageSpec, file: BinaryIO) -> contextlib.AbstractContextManager[Writer]:
    if spec.archive_format == "tgz":
        return TarWriter(file, spec.model_name)
    return ZipWriter(file, stored=spec.archive_format == "zip-store")
