"""The manifest of an archive: ``MAR-INF/MANIFEST.json``, with TorchServe's keys and our digests.

Digests stand under the key ``marserve``, which TorchServe ignores: ``{"sha256": {file: hex}}``. The
manifest is written last, so it can name the digest of every other file without a second pass.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from marserve.archiver.errors import ArchiveError

MANIFEST_PATH = "MAR-INF/MANIFEST.json"
MAX_MANIFEST_BYTES = 16 << 20
DEFAULT_VERSION = "1.0"
TRANSFORMER_HANDLER = "transformer_handler"
RUNTIMES = ("python", "python3", "LSP")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ManifestModel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What the manifest says of the model; file names are relative to the archive's root.

    Args:
        model_name: Matches the pattern of ``check_model_name``; empty where there is no manifest.
        handler: ``file.py``, ``module:function`` or the name of a built-in handler.
        serialized_file: The weights.
        model_file: Python file with the model's class.
        config_file: The model-config.yaml.
        extensions: Free, kept for TorchServe.
    """

    model_name: str = ""
    serialized_file: str | None = None
    handler: str = ""
    model_file: str | None = None
    model_version: str = ""
    extensions: dict[str, Any] | None = None
    requirements_file: str | None = None
    config_file: str | None = None

    def files(self) -> dict[str, str]:
        """Returns the files that the manifest names, by its key; the handler is not one of them."""
        named = {
            "serializedFile": self.serialized_file,
            "modelFile": self.model_file,
            "requirementsFile": self.requirements_file,
            "configFile": self.config_file,
        }
        return {key: name for key, name in named.items() if name}


class _Signature(msgspec.Struct, frozen=True):
    sha256: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The whole manifest.

    Args:
        created_on: ``dd/mm/YYYY HH:MM:SS``, UTC.
        runtime: ``python``, ``python3`` or ``LSP``.
        archiver_version: Version of the program that packed the archive.
        marserve: What only marserve reads; see ``digests``.
    """

    created_on: str = ""
    runtime: str = ""
    model: ManifestModel = ManifestModel()
    archiver_version: str = ""
    marserve: _Signature = _Signature()

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file but the manifest, lower-case hex; empty if packed elsewhere."""
        return self.marserve.sha256

    def with_digests(self, digests: dict[str, str]) -> Manifest:
        """Returns a copy with these digests, sorted by file name."""
        return msgspec.structs.replace(self, marserve=_Signature(dict(sorted(digests.items()))))

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values under TorchServe's keys; what is not set is absent."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def to_json(self) -> bytes:
        """Returns the file's content: two spaces of indent and a final newline."""
        return (json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def absent(cls) -> Manifest:
        """Returns what stands in for a missing manifest: TorchServe allows archives without one."""
        return cls(runtime="python", model=ManifestModel(model_version=DEFAULT_VERSION))

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Reads and checks a manifest; unknown keys are ignored and numbers are read as texts.

        Raises:
            ArchiveError: If it is no JSON, or a key is missing or wrong.
        """
        try:
            manifest = msgspec.convert(_plain(data), cls)
        except msgspec.ValidationError as error:
            raise ArchiveError(f"{MANIFEST_PATH}: {_lower(str(error))}") from None
        manifest._check()
        return manifest

    def _check(self) -> None:
        if self.runtime not in RUNTIMES:
            _refuse("runtime", self.runtime, f"one of {', '.join(RUNTIMES)}")
        try:
            check_model_name(self.model.model_name)
        except ArchiveError as error:
            raise ArchiveError(f"{MANIFEST_PATH}: $.model.modelName: {error}") from None
        version = self.model.model_version
        if not version or _CONTROL.search(version):
            _refuse("model.modelVersion", version, 'a version such as "1.0"')
        for key, name in self.model.files().items():
            if not _is_inside(name):
                _refuse(f"model.{key}", name, "a file name inside the archive")
        if _CONTROL.search(self.model.handler):
            _refuse("model.handler", self.model.handler, "module[:function] or a file name")


def check_model_name(name: str, what: str = "model name") -> None:
    """Refuses names that TorchServe would refuse.

    Args:
        name: Of a model or workflow.
        what: What to call it in the message.

    Raises:
        ArchiveError: If the name is not a letter or digit followed by letters, digits, ``_ - .``.
    """
    if not _NAME.fullmatch(name):
        raise ArchiveError(
            f"{what} {name!r} is not allowed: it must begin with a letter or digit and consist "
            "of letters, digits, '_', '-' and '.' only"
        )


def _plain(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_MANIFEST_BYTES:
        raise ArchiveError(f"{MANIFEST_PATH}: larger than {MAX_MANIFEST_BYTES} bytes")
    try:
        # Numbers stay as they were written: hand-written manifests have versions like 1.10.
        plain = json.loads(data, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{MANIFEST_PATH}: cannot be read as JSON: {error}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("model"), dict):
        raise ArchiveError(f"{MANIFEST_PATH}: expected an object with the key 'model'")
    plain["model"] = _without_nulls(plain["model"])
    return _without_nulls(plain)


def _without_nulls(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if value is not None}


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    return not (_CONTROL.search(name) or "\\" in name or {"", ".", ".."} & set(parts))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")


def _refuse(key: str, value: str, right: str) -> None:
    found = repr(value) if value else "nothing"
    raise ArchiveError(f"{MANIFEST_PATH}: $.{key}: expected {right}, got {found}")
