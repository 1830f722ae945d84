"""Triton's model folders, config.pbtxt and a folder for each version, read as archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from marserve.archiver.digest import hash_lines
from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.foreign import Format
from marserve.archiver.manifest import Manifest, ManifestModel, check_model_name
from marserve.archiver.model_config import parse_model_config
from marserve.archiver.triton_complete import completed_from_file
from marserve.archiver.triton_config import FILE_NAME, TritonConfig, completed, load_triton_config
from marserve.archiver.triton_ensemble import read_steps
from marserve.archiver.triton_settings import decoupled, model_settings
from marserve.archiver.triton_signature import signature
from marserve.archiver.unpack import Archive, walk_files

KEY = "triton"
"""Section of a model's configuration that holds all that the worker is told of its folder."""
ENSEMBLE_HANDLER = "triton_ensemble"
"""Stands for no handler: the server itself runs the steps."""
_OTHERS = ("model-settings.json", "MANIFEST.json", "model-config.yaml")


class Backend(NamedTuple):
    """What runs a model.

    Args:
        name: Triton's word.
        platforms: Words for it under the key ``platform``.
        files: Names of the model's file where the configuration gives none.
        handler: Of ours.
    """

    name: str
    platforms: tuple[str, ...]
    files: tuple[str, ...]
    handler: str


BACKENDS = (
    Backend("python", (), ("model.py",), "triton_python"),
    Backend("onnxruntime", ("onnxruntime_onnx",), ("model.onnx",), "triton_program"),
    Backend("pytorch", ("pytorch_libtorch",), ("model.pt", "model.pt2"), "triton_program"),
    Backend("pytorch", ("torch_aoti",), ("model.pt2",), "triton_program"),
    Backend("openvino", (), ("model.xml",), "triton_program"),
    Backend("ensemble", ("ensemble",), (), ENSEMBLE_HANDLER),
)


def recognizes(folder: Path) -> bool:
    """Tells whether a folder is a model of Triton's, or one of its version folders."""
    if any((folder / name).exists() for name in _OTHERS):
        return False
    if (folder / FILE_NAME).is_file() or _has_versions(folder):
        return True
    home = folder.parent
    return _is_number(folder.name) and ((home / FILE_NAME).is_file() or _has_versions(home))


def members(folder: Path) -> list[str]:
    """Returns the version folders that are served, the one that answers by default first.

    Of a folder that cannot be read, it is the folder itself: to open that tells why.
    """
    if _is_version(folder):
        return [""]
    try:
        return [str(version) for version in reversed(chosen_versions(folder, _config(folder)))]
    except (ArchiveError, ConfigError):
        return [""]


def open_folder(folder: Path) -> Archive:
    """Reads a version folder, or the model's folder as its default version.

    Raises:
        ConfigError: If the configuration is wrong.
        ArchiveError: If files are missing.
    """
    home = folder.parent if _is_version(folder) else folder
    config = _config(home)
    version = folder.name if _is_version(folder) else str(chosen_versions(home, config)[-1])
    check_model_name(home.name, "name of the model's folder")
    named = config.plain.get("name")
    if named and named != home.name:
        config.refuse("name", f"is {named!r}, but the model's folder is {home.name!r}")
    backend = find_backend(config, home / version)
    file = _model_file(config, home / version, backend)
    config.plain["name"] = home.name
    config = completed_from_file(config, home / version / file if file else None, backend.name)
    return _archive(home, version, backend, file, config)


def _archive(
    home: Path, version: str, backend: Backend, file: str, config: TritonConfig
) -> Archive:
    config = replace(config, plain=completed(_with_defaults(config.plain, file)).plain)
    described = {
        "config": config.plain,
        "backend": backend.name,
        "version": version,
        "file": f"{version}/{file}" if file else "",
    }
    if backend.name == "ensemble":
        read_steps(config)
    settings = {**model_settings(config, backend.name), KEY: described}
    handler = "triton_decoupled" if decoupled(config.plain) else backend.handler
    model = ManifestModel(model_name=home.name, handler=handler, model_version=version)
    parsed = parse_model_config(settings, FILE_NAME)
    parsed.warnings.extend(config.warnings)
    tensors = signature(config, home)
    return Archive(
        home, Manifest(runtime="python", model=model), parsed, _digest(home, version), tensors
    )


def _with_defaults(plain: dict[str, Any], file: str) -> dict[str, Any]:
    """What Triton writes into a configuration that says nothing of it."""
    name, groups = plain["name"], plain.get("instance_group", [])
    if not groups and plain.get("platform") != "ensemble":
        groups = [{"name": name, "kind": "KIND_AUTO", "count": 1}]
    named = [{**each, "name": each.get("name") or f"{name}_{i}"} for i, each in enumerate(groups)]
    policy = plain.get("version_policy") or {"latest": {"num_versions": 1}}
    return {
        **plain,
        "version_policy": policy,
        "instance_group": named,
        "default_model_filename": plain.get("default_model_filename") or file,
    }


def reconfigured(archive: Archive, config: TritonConfig) -> Archive:
    """Returns the archive with another configuration, which its model has completed.

    Raises:
        ConfigError: If the configuration is wrong.
        ArchiveError: If it names a file that is missing.
    """
    version: str = archive.config.raw[KEY]["version"]
    folder = archive.directory / version
    backend = find_backend(config, folder)
    file = _model_file(config, folder, backend)
    return _archive(archive.directory, version, backend, file, config)


def chosen_versions(folder: Path, config: TritonConfig) -> list[int]:
    """Returns the versions that ``version_policy`` serves, in ascending order.

    Raises:
        ArchiveError: If there is none.
        ConfigError: If the policy says nothing sensible.
    """
    there = version_folders(folder)
    policy = config.plain.get("version_policy", {})
    if len(policy) > 1:
        config.refuse("version_policy", f"expected one of latest, all, specific; got {len(policy)}")
    if "specific" in policy:
        wanted = set(policy["specific"].get("versions", []))
        chosen = [version for version in there if version in wanted]
    elif "all" in policy:
        chosen = there
    else:
        count = policy.get("latest", {}).get("num_versions", 1) or 1
        chosen = there[-count:]
    if not chosen:
        shown = ", ".join(map(str, there)) or "none"
        raise ArchiveError(
            f"{folder.name}: no version folder to serve (there: {shown}); expected a folder named"
            " by a whole number, such as 1, that version_policy admits"
        )
    return chosen


def version_folders(folder: Path) -> list[int]:
    """Returns the numbers of all version folders, in ascending order."""
    names = (each.name for each in folder.iterdir() if each.is_dir())
    return sorted(int(name) for name in names if _is_number(name))


def find_backend(config: TritonConfig, folder: Path) -> Backend:
    """Returns what runs the model of a version folder.

    Raises:
        ConfigError: If it is something that this server has not.
        ArchiveError: If neither the configuration nor a file tells.
    """
    backend, platform = config.plain["backend"], config.plain["platform"]
    known = ", ".join(dict.fromkeys(each.name for each in BACKENDS))
    if "ensemble_scheduling" in config.plain and not backend and not platform:
        platform = "ensemble"
    for each in BACKENDS:
        if platform and platform in each.platforms and backend in ("", each.name):
            return each
        if backend == each.name and not platform:
            return each
    if backend or platform:
        key = "backend" if backend else "platform"
        config.refuse(key, f"{backend or platform!r} is not served", f"there are: {known}")
    for each in BACKENDS:
        if any((folder / name).exists() for name in each.files):
            return each
    raise ArchiveError(
        f"{folder.parent.name}: neither backend nor platform is given, and version {folder.name}"
        f" has no file such as {', '.join(each.files[0] for each in BACKENDS if each.files)}"
    )


def _model_file(config: TritonConfig, folder: Path, backend: Backend) -> str:
    named: str = config.plain["default_model_filename"]
    if backend.name == "ensemble":
        return ""
    if named and (Path(named).name != named or named in (".", "..")):
        config.refuse("default_model_filename", f"expected the name of a file, got {named!r}")
    for name in [named] if named else backend.files:
        if (folder / name).exists():
            return name
    raise ArchiveError(
        f"{folder.parent.name}: version {folder.name} has no file {named or backend.files[0]}"
    )


def _config(folder: Path) -> TritonConfig:
    path = folder / FILE_NAME
    if path.is_file():
        return load_triton_config(path)
    return TritonConfig(
        {
            "name": "",
            "platform": "",
            "backend": "",
            "default_model_filename": "",
            "max_batch_size": 0,
        }
    )


def _digest(home: Path, version: str) -> str:
    lines = []
    for name, file in walk_files(home):
        first = name.partition("/")[0]
        if first == version or not _is_number(first):
            status = file.stat()
            lines.append(f"{status.st_size} {status.st_mtime_ns} {name}")
    return hash_lines([version, *lines])


def _has_versions(folder: Path) -> bool:
    names = {name for each in BACKENDS for name in each.files}
    return any(
        (folder / str(version) / name).exists()
        for version in version_folders(folder)
        for name in names
    )


def _is_version(folder: Path) -> bool:
    """A model may itself be called by a number; then it has version folders of its own."""
    if not _is_number(folder.name) or (folder / FILE_NAME).is_file():
        return False
    return not _has_versions(folder)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and not name.startswith("0")


FORMAT = Format("Triton model", recognizes, open_folder, members)
