"""What to pack: the flags of ``archive-model`` as one value."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from marserve.archiver.errors import ArchiveError
from marserve.archiver.manifest import RUNTIMES, TRANSFORMER_HANDLER, check_model_name
from marserve.archiver.schema import nearest

FORMATS = ("default", "zip-store", "tgz", "no-archive")
BUILTIN_HANDLERS = (
    TRANSFORMER_HANDLER,
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
    "trt_llm_handler",
)
_CPP_HANDLERS = ("BaseHandler", "TorchScriptHandler")
_SUFFIXES = {"tgz": ".tar.gz", "no-archive": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    """What to pack, and where to put it; one field for each flag.

    Args:
        model_name: Letters, digits, ``_ - .``; begins with a letter or digit.
        version: Any text.
        handler: Name of a built-in, a Python file, ``file:entry`` or ``file.py:entry``.
        serialized_file: Weights.
        model_file: Python file with the model's class.
        extra_files: Files, patterns and directories, as a list or as one text with commas.
        runtime: One of ``python``, ``python3``, ``LSP``.
        export_path: Directory for the archive; made if missing.
        archive_format: One of ``FORMATS``.
        force: Whether an existing archive is replaced.
        requirements_file: Python packages to install for this model.
        config_file: The model-config.yaml.
        check: Whether contents are checked before anything is written.
    """

    model_name: str
    handler: str
    version: str = "1.0"
    serialized_file: Path | None = None
    model_file: Path | None = None
    extra_files: str | tuple[str | Path, ...] = ()
    runtime: str = "python"
    export_path: Path = Path()
    archive_format: str = "default"
    force: bool = False
    requirements_file: Path | None = None
    config_file: Path | None = None
    check: bool = True

    @property
    def target(self) -> Path:
        """Where the archive goes."""
        suffix = _SUFFIXES.get(self.archive_format, ".mar")
        return Path(self.export_path) / f"{self.model_name}{suffix}"

    def validate(self) -> None:
        """Refuses values that no archive can have.

        Raises:
            ArchiveError: If a value is none of those allowed.
        """
        check_model_name(self.model_name)
        for flag, value, allowed in (
            ("--runtime", self.runtime, RUNTIMES),
            ("--archive-format", self.archive_format, FORMATS),
        ):
            if value not in allowed:
                raise ArchiveError(f"{flag}: expected one of {', '.join(allowed)}, got {value!r}")
        if not self.version or not self.version.isprintable():
            raise ArchiveError(f'--version: expected a text such as "1.0", got {self.version!r}')


@dataclass(frozen=True, slots=True)
class Handler:
    """Where a handler comes from.

    Args:
        name: What the manifest says.
        source: The file to pack, None for a built-in.
    """

    name: str
    source: Path | None


def resolve_handler(handler: str, runtime: str = "python") -> Handler:
    """Finds the file that ``--handler`` means.

    Raises:
        ArchiveError: If there is no such file.
    """
    if handler in (_CPP_HANDLERS if runtime == "LSP" else BUILTIN_HANDLERS):
        return Handler(handler, None)
    file, colon, entry = handler.rpartition(":") if ":" in handler else (handler, "", "")
    suffix = ".py"
    if runtime == "LSP":
        suffix = ".dylib" if sys.platform == "darwin" else ".so"
    path = Path(file if file.endswith(suffix) or Path(file).is_file() else file + suffix)
    if not path.is_file():
        raise ArchiveError(f"--handler: file not found: {path}{_alternatives(handler)}")
    if runtime == "LSP":
        return Handler(Path(handler).name, path)
    # The loader of TorchServe takes "module:entry"; a suffix before the colon only confuses it.
    return Handler(f"{path.stem}:{entry}" if colon else Path(handler).name, path)


def _alternatives(handler: str) -> str:
    if "/" in handler or ":" in handler or handler.endswith(".py"):
        return ""
    if meant := nearest(handler, list(BUILTIN_HANDLERS)):
        return f" (did you mean the built-in {meant}?)"
    return f" (nor is it a built-in: {', '.join(BUILTIN_HANDLERS)})"
