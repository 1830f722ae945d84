"""Archives opened for use: a ``.mar`` or ``.tar.gz`` is extracted, a directory is used in place."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from marserve.archiver.containers import read_members
from marserve.archiver.digest import HashedReader, hash_lines
from marserve.archiver.errors import ArchiveError
from marserve.archiver.foreign import format_of
from marserve.archiver.manifest import (
    MANIFEST_PATH,
    MAX_MANIFEST_BYTES,
    TRANSFORMER_HANDLER,
    Manifest,
)
from marserve.archiver.members import DEFAULT_LIMITS, Limits
from marserve.archiver.model_config import ModelConfig, load_model_config
from marserve.archiver.own_signature import own_signature
from marserve.archiver.signature import Signature

__all__ = ["Archive", "Limits", "digest_problems", "open_directory", "unpack"]

_SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose files are ready for use.

    Args:
        directory: Where the files are; the worker's ``model_dir``.
        manifest: Its ``model.model_name`` is empty where the archive has no manifest.
        config: The model-config.yaml, empty where there is none.
        digest: Changes whenever a file of the archive does; hex. For an extracted archive it comes
            from the contents, for a directory from names, sizes and times.
        signature: Its tensors, where they are declared.
    """

    directory: Path
    manifest: Manifest
    config: ModelConfig
    digest: str
    signature: Signature | None = None


def unpack(path: Path, target_dir: Path, limits: Limits = DEFAULT_LIMITS) -> Archive:
    """Extracts a ``.mar`` or ``.tar.gz`` file and compares it with its own digests, if any.

    Args:
        path: The archive.
        target_dir: Must be absent or empty; only its owner may enter it afterwards.
        limits: What the archive may cost.

    Raises:
        ArchiveError: If it is broken, hostile or too large; nothing is left of it then.
        ConfigError: If its model-config.yaml is wrong; nothing is left then either.
    """
    _make_private(target_dir)
    try:
        root, digests = extract(path, target_dir, limits)
        manifest = read_manifest(root)
        if problems := digest_problems(manifest, digests):
            shown = "; ".join(problems[:_SHOWN_PROBLEMS])
            raise ArchiveError(f"{path.name}: {shown}{' ...' * (len(problems) > _SHOWN_PROBLEMS)}")
        digest = hash_lines(f"{digest} {name}" for name, digest in digests.items())
        config = _read_config(root, manifest)
        return Archive(root, manifest, config, digest, own_signature(root, manifest, config))
    except BaseException:
        shutil.rmtree(target_dir, ignore_errors=True)
        raise


def open_directory(path: Path) -> Archive:
    """Reads a directory with the files of an archive, in place.

    A directory is the operator's own: files may be edited or added, so digests are not compared
    here (``archive-model verify`` does).

    Raises:
        ArchiveError: If it cannot be read.
        ConfigError: If its model-config.yaml is wrong.
    """
    if not path.is_dir():
        raise ArchiveError(f"{path.name}: is no directory")
    if (foreign := format_of(path)) is not None:
        return foreign.open(path)
    root = find_root(path)
    manifest = read_manifest(root)
    lines = []
    for name, file in walk_files(root):
        status = file.stat()
        lines.append(f"{status.st_size} {status.st_mtime_ns} {name}")
    config = _read_config(root, manifest)
    signature = own_signature(root, manifest, config)
    return Archive(root, manifest, config, hash_lines(lines), signature)


def digest_problems(manifest: Manifest, found: dict[str, str]) -> list[str]:
    """Compares the digests of the manifest with those found.

    Args:
        manifest: Without digests there is nothing to compare, and no problem.
        found: sha256 by file name, the manifest's own included.

    Returns:
        One text for each file that differs, is missing or was added.
    """
    expected = manifest.digests
    if not expected:
        return []
    names = sorted((expected.keys() | found.keys()) - {MANIFEST_PATH})
    problems = []
    for name in names:
        if name not in found:
            problems.append(f"{name}: is in the manifest but not in the archive")
        elif name not in expected:
            problems.append(f"{name}: is in the archive but not in the manifest")
        elif expected[name] != found[name]:
            problems.append(f"{name}: sha256 is {found[name]}, the manifest says {expected[name]}")
    return problems


def read_manifest(root: Path) -> Manifest:
    """Returns the manifest of unpacked files, or what stands in for a missing one.

    Raises:
        ArchiveError: If it is wrong.
    """
    path = root / MANIFEST_PATH
    if not path.is_file():
        return Manifest.absent()
    with path.open("rb") as file:
        return Manifest.from_json(file.read(MAX_MANIFEST_BYTES + 1))


def walk_files(root: Path) -> list[tuple[str, Path]]:
    """Returns all files under a directory, by relative name with ``/``, sorted; links are followed.

    Raises:
        ArchiveError: If there are more than an archive may have: this is no model's directory.
    """
    found: list[tuple[str, Path]] = []
    for parent, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not _is_above(parent, name)]
        paths = [Path(parent, name) for name in names]
        found += ((path.relative_to(root).as_posix(), path) for path in paths if path.is_file())
        if len(found) > DEFAULT_LIMITS.members:
            raise ArchiveError(f"{root.name}: has more than {DEFAULT_LIMITS.members} files")
    return sorted(found)


def _is_above(parent: str, folder: str) -> bool:
    """Whether a folder is a link to where we are, or above."""
    real = os.path.realpath(os.path.join(parent, folder))
    return os.path.commonpath([real, os.path.realpath(parent)]) == real


def _make_private(target_dir: Path) -> None:
    try:
        target_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        target_dir.chmod(0o700)
        occupied = any(target_dir.iterdir())
    except OSError as error:
        raise ArchiveError(f"{target_dir}: cannot be made: {error.strerror}") from error
    if occupied:
        raise ArchiveError(f"{target_dir}: is not empty")


def extract(path: Path, target_dir: Path, limits: Limits) -> tuple[Path, dict[str, str]]:
    """Extracts an archive without a look at what its files mean.

    Args:
        path: The archive.
        target_dir: An empty directory; what is there after an error is the caller's to remove.
        limits: What the archive may cost.

    Returns:
        The root of the files, and the sha256 of each by its name below the root.

    Raises:
        ArchiveError: If it is broken, hostile or too large.
    """
    digests = {}
    with read_members(path, limits) as members:
        for member, content in members:
            with _create(target_dir / member.name) as file:
                copied = HashedReader(content).copy(file.write, member.size_bytes)
            if copied.size_bytes != member.size_bytes:
                raise ArchiveError(f"{member.name!r}: is not of the size that it claims")
            digests[member.name] = copied.hexdigest()
    root = find_root(target_dir)
    prefix = "" if root == target_dir else f"{root.name}/"
    return root, {name.removeprefix(prefix): digest for name, digest in digests.items()}


def _create(path: Path) -> BinaryIO:
    """Opens a new file; whatever is in the way is an error and not overwritten."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def find_root(directory: Path) -> Path:
    """Returns the one directory that ``directory`` holds if it holds nothing else, else itself."""
    children = list(directory.iterdir())
    if len(children) == 1 and children[0].is_dir() and not (directory / MANIFEST_PATH).is_file():
        return children[0]
    return directory


def _read_config(root: Path, manifest: Manifest) -> ModelConfig:
    name = manifest.model.config_file
    if name is None:
        return ModelConfig()
    if not (root / name).is_file():
        raise ArchiveError(f"{MANIFEST_PATH}: $.model.configFile: {name!r} is not in the archive")
    strict = manifest.model.handler == TRANSFORMER_HANDLER
    return load_model_config(root / name, strict_handler=strict)
