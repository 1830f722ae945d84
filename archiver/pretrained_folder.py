"""Saved Hugging Face directories, served as they are: no archive is packed."""

from __future__ import annotations

from pathlib import Path

from marserve.archiver.digest import hash_lines
from marserve.archiver.foreign import Format
from marserve.archiver.manifest import (
    DEFAULT_VERSION,
    TRANSFORMER_HANDLER,
    Manifest,
    ManifestModel,
)
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.own_signature import own_signature
from marserve.archiver.pretrained import folder_settings
from marserve.archiver.unpack import Archive, walk_files


def recognizes(folder: Path) -> bool:
    """Tells whether a folder is one that ``save_pretrained`` wrote."""
    return (folder / "config.json").is_file() and any(
        each.suffix in (".safetensors", ".bin") for each in folder.iterdir()
    )


def open_folder(folder: Path) -> Archive:
    """Reads the folder in place, for the task that it was saved for.

    Raises:
        ArchiveError: If its weights are missing, or its task cannot be told.
    """
    weights, settings = folder_settings(folder)
    config = parse_model_config(settings, "config.json")
    model = ManifestModel(
        model_name=folder.name,
        model_version=DEFAULT_VERSION,
        handler=TRANSFORMER_HANDLER,
        serialized_file=weights,
    )
    manifest = Manifest(runtime="python", model=model)
    lines = []
    for name, file in walk_files(folder):
        status = file.stat()
        lines.append(f"{status.st_size} {status.st_mtime_ns} {name}")
    signature = own_signature(folder, manifest, config)
    return Archive(folder, manifest, config, hash_lines(lines), signature)


FORMAT = Format("Hugging Face directory", recognizes, open_folder)
