"""An archive made from another one: the same model in another form."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import MANIFEST_PATH
from marserve.archiver.package import Progress, package
from marserve.archiver.spec import BUILTIN_HANDLERS, PackageSpec
from marserve.archiver.unpack import Archive, walk_files

_CONFIG_FILE = "model-config.yaml"
_FORMATS = {".tar.gz": "tgz", ".mar": "default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How an archive differs from the one that it is made from.

    Args:
        config: The whole model-config.yaml as plain values.
        serialized_file: Name of the serialized file in the archive, or None.
        files: New files by name; they replace those of the same name.
        removed: Names of files to leave out.
    """

    config: Mapping[str, Any]
    serialized_file: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()


def repack(
    archive: Archive,
    changes: Changes,
    target: Path,
    *,
    archive_format: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Writes a changed copy of an archive; it is checked like any other.

    Args:
        archive: The unpacked original; it stays as it is.
        changes: What differs.
        target: The new archive; its name may be another one than the model's.
        archive_format: One of ``spec.FORMATS``; None to tell by the target's name.
        force: Whether an existing target is replaced.
        progress: Told of every megabyte.

    Returns:
        The target.

    Raises:
        ArchiveError: If the changes do not fit together, or the target exists.
    """
    if target.exists() and not force:
        raise ArchiveError(f"{target} already exists: give --force/-f to replace it")
    form = archive_format or format_of(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".marserve-", dir=target.parent) as scratch:
        staging, written = Path(scratch, "files"), Path(scratch, "archive")
        _stage(archive, changes, staging)
        spec = _spec(archive, changes, staging, written, form)
        written.mkdir()
        finished = package(spec, progress)
        if target.is_dir():
            shutil.rmtree(target)
        finished.replace(target)
    return target


def format_of(target: Path) -> str:
    """Returns the archive format that a file name means; a name without a suffix is a directory.

    Raises:
        ArchiveError: If the suffix is another one.
    """
    for suffix, form in _FORMATS.items():
        if target.name.endswith(suffix):
            return form
    if target.suffix:
        raise ArchiveError(f"--output: expected a name that ends in .mar or .tar.gz, got {target}")
    return "no-archive"


def _stage(archive: Archive, changes: Changes, staging: Path) -> None:
    """A directory with what goes into the new archive: links, since nothing in it is changed."""
    old = {name: path for name, path in walk_files(archive.directory) if name != MANIFEST_PATH}
    kept = {name: path for name, path in old.items() if name not in changes.removed}
    for name, path in {**kept, **changes.files}.items():
        place = staging / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path.resolve())
    config = staging / (archive.manifest.model.config_file or _CONFIG_FILE)
    config.unlink(missing_ok=True)
    text = yaml.safe_dump(dict(changes.config), sort_keys=False, allow_unicode=True)
    config.write_text(text, encoding="utf-8")


def _spec(
    archive: Archive, changes: Changes, staging: Path, target: Path, form: str
) -> PackageSpec:
    model = archive.manifest.model

    def inside(name: str | None) -> Path | None:
        return None if name is None else staging / name

    return PackageSpec(
        model_name=model.model_name,
        version=model.model_version,
        handler=_handler(model.handler, staging),
        serialized_file=inside(changes.serialized_file),
        model_file=inside(model.model_file),
        requirements_file=inside(model.requirements_file),
        config_file=inside(model.config_file or _CONFIG_FILE),
        extra_files=(staging,),
        runtime=archive.manifest.runtime,
        export_path=target,
        archive_format=form,
    )


def _handler(name: str, staging: Path) -> str:
    if name in BUILTIN_HANDLERS:
        return name
    module, colon, entry = name.partition(":")
    return f"{staging / module.removesuffix('.py')}.py{colon}{entry}"
