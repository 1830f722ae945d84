"""Archives looked at: what is in one, and whether it is sound."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from marserve.archiver.checks import check_files
from marserve.archiver.containers import read_members
from marserve.archiver.digest import hash_file
from marserve.archiver.errors import ArchiveError, MarserveError
from marserve.archiver.manifest import MANIFEST_PATH, MAX_MANIFEST_BYTES, Manifest
from marserve.archiver.members import DEFAULT_LIMITS, Limits
from marserve.archiver.plain_file import MAX_BYTES
from marserve.archiver.unpack import digest_problems, extract, find_root, read_manifest, walk_files


@dataclass(frozen=True, slots=True)
class File:
    """One file of an archive; ``packed_bytes`` and ``sha256`` are None where unknown."""

    name: str
    size_bytes: int
    packed_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive says of itself, without extracting or checking it.

    Args:
        path: The archive.
        size_bytes: Of the archive; for a directory, of all of its files.
        manifest: With TorchServe's keys.
        config: The model-config.yaml as plain values, None if there is none or it cannot be read.
        files: By name, the manifest included.
    """

    path: str
    size_bytes: int
    manifest: dict[str, Any]
    config: Any
    files: list[File]

    def render(self) -> str:
        """Returns lines for people."""
        model = self.manifest["model"]
        config = yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True).rstrip()
        lines = [
            f"{self.path}: {len(self.files)} files, {_human(self.size_bytes)}",
            f"model:   {model.get('modelName', '(no manifest)')} {model['modelVersion']}",
            f"handler: {model.get('handler', '(the default)')} ({self.manifest['runtime']})",
            f"packed:  {self._date()} by {self.manifest.get('archiverVersion', '-')}",
            "manifest:",
            *(f"  {key}: {value}" for key, value in model.items()),
            "config:" if self.config else "config:  none",
            *(f"  {line}" for line in config.splitlines() if self.config),
            f"{'size':>10} {'packed':>10}  {'sha256':<16}  file",
        ]
        for file in self.files:
            packed = "-" if file.packed_bytes is None else _human(file.packed_bytes)
            digest = (file.sha256 or "-")[:16]
            lines.append(f"{_human(file.size_bytes):>10} {packed:>10}  {digest:<16}  {file.name}")
        return "\n".join(lines)

    def _date(self) -> str:
        date = str(self.manifest.get("createdOn", "-"))
        return "without a date" if date.startswith("01/01/1980 ") else date

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return asdict(self)


def inspect_archive(path: Path, limits: Limits = DEFAULT_LIMITS) -> Contents:
    """Reads an archive's table of contents.

    Raises:
        ArchiveError: If it cannot be read, or is hostile.
    """
    sizes: dict[str, tuple[int, int | None]] = {}
    small: dict[str, bytes] = {}
    if path.is_dir():
        for name, file in walk_files(find_root(path)):
            sizes[name] = (file.stat().st_size, None)
            if _is_small(name, sizes[name][0]):
                small[name] = file.read_bytes()
    else:
        with read_members(path, limits) as members:
            for member, content in members:
                sizes[member.name] = (member.size_bytes, member.packed_bytes)
                if _is_small(member.name, member.size_bytes):
                    small[member.name] = content.read(member.size_bytes)
    manifest_data = small.get(MANIFEST_PATH)
    manifest = Manifest.from_json(manifest_data) if manifest_data else Manifest.absent()
    total_bytes = sum(size for size, _ in sizes.values())
    return Contents(
        path=str(path),
        size_bytes=total_bytes if path.is_dir() else path.stat().st_size,
        manifest={key: value for key, value in manifest.as_dict().items() if key != "marserve"},
        config=_plain_config(small.get(manifest.model.config_file or "")),
        files=[
            File(name, size_bytes, packed_bytes, manifest.digests.get(name))
            for name, (size_bytes, packed_bytes) in sorted(sizes.items())
        ],
    )


def verify_archive(path: Path, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """Extracts an archive to a scratch directory and checks everything that can be checked.

    Returns:
        The problems, none for a sound archive.

    Raises:
        ArchiveError: If it cannot be read, or is hostile.
    """
    if path.is_dir():
        root = find_root(path)
        digests = {name: hash_file(file) for name, file in walk_files(root)}
        # Packing into an existing directory leaves its other files alone, so more is no error here.
        named = read_manifest(root).digests.keys() | {MANIFEST_PATH}
        return _problems(root, {name: digests[name] for name in digests.keys() & named})
    with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
        return _problems(*extract(path, Path(scratch), limits))


def _problems(root: Path, digests: dict[str, str]) -> list[str]:
    if not (root / MANIFEST_PATH).is_file():
        return [f"{MANIFEST_PATH}: is not in the archive"]
    try:
        manifest = read_manifest(root)
    except MarserveError as error:
        return [str(error)]
    report = check_files(dict(walk_files(root)), manifest)
    return digest_problems(manifest, digests) + report.problems


def _human(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _is_small(name: str, size_bytes: int) -> bool:
    """Whether a file may be the manifest or the configuration."""
    if name == MANIFEST_PATH:
        if size_bytes > MAX_MANIFEST_BYTES:
            raise ArchiveError(f"{MANIFEST_PATH}: larger than {MAX_MANIFEST_BYTES} bytes")
        return True
    return name.endswith((".yaml", ".yml")) and size_bytes <= MAX_BYTES


def _plain_config(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return None
