"""An archive reviewed before it is served: what will not work, and what will behave differently."""

from __future__ import annotations

import ast
import re
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from marserve.archiver.absent_imports import absent_imports
from marserve.archiver.checks import check_files
from marserve.archiver.errors import MarserveError
from marserve.archiver.findings import Finding, from_messages
from marserve.archiver.manifest import MANIFEST_PATH, Manifest, ManifestModel
from marserve.archiver.members import DEFAULT_LIMITS, Limits
from marserve.archiver.model_config import ModelConfig, load_model_config
from marserve.archiver.removed_calls import is_removed_call, removed_calls
from marserve.archiver.unpack import (
    digest_problems,
    extract,
    find_root,
    read_manifest,
    walk_files,
)

_TRANSFORMERS_4 = re.compile(r"^\s*transformers\b[^#\n]*(<\s*5|[=~]=\s*4)", re.MULTILINE)
_CPP = "C++ handlers are not run: write the handler in Python"
_UNSERVED = {
    "dali_image_classifier": "NVIDIA DALI's",
    "vllm_handler": "vLLM's",
    "trt_llm_handler": "TensorRT-LLM's",
}


class Reviewed:
    """What a review found in one archive.

    Attributes:
        findings: All of them.
        identity: Name and version, None if they cannot be read.
        config: Its model-config.yaml as far as it is sound.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.identity: tuple[str, str] | None = None
        self.config = ModelConfig()


def review_archive(path: Path, shim: Path, limits: Limits = DEFAULT_LIMITS) -> Reviewed:
    """Reads an archive or its unpacked directory; no code of it is run and no weight loaded.

    Args:
        path: The archive.
        shim: As for ``absent_imports``.
        limits: What it may cost to unpack.
    """
    reviewed = Reviewed()
    try:
        if path.is_dir():
            root = find_root(path)
            _review(reviewed, root, {}, shim)
        else:
            with tempfile.TemporaryDirectory(prefix="marserve-") as scratch:
                root, digests = extract(path, Path(scratch), limits)
                _review(reviewed, root, digests, shim)
    except (MarserveError, OSError) as error:
        reviewed.findings.append(Finding("error", str(error), "pack it again"))
    return reviewed


def review_code(
    path: Path, name: str, own: set[str], requirements: str | None, shim: Path, *, handler: bool
) -> list[Finding]:
    """Reads one Python file; one that cannot be parsed is left to ``check_files``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes(), name)
    except (SyntaxError, OSError, ValueError, RecursionError, MemoryError):
        return []
    found = removed_calls(tree, name, replaceable=handler)
    found += absent_imports(tree, name, own, requirements=requirements, shim=shim)
    return sorted(found, key=lambda finding: finding.line)


def _brings_transformers_4(files: dict[str, Path], model: ManifestModel) -> bool:
    """Whether the archive's list of packages asks for a transformers that has the removed calls."""
    path = files.get(model.requirements_file or "")
    return path is not None and _TRANSFORMERS_4.search(path.read_text(errors="replace")) is not None


def _review(reviewed: Reviewed, root: Path, digests: dict[str, str], shim: Path) -> None:
    files = dict(walk_files(root))
    if MANIFEST_PATH not in files:
        text = "there is no manifest: name and handler come from the file's name and the server"
        reviewed.findings.append(Finding("note", text, "pack it with archive-model"))
    manifest = read_manifest(root)
    model = manifest.model
    reviewed.identity = (model.model_name, model.model_version) if model.model_name else None
    report = check_files(files, manifest)
    name = model.config_file or ""
    sources = {name: files[name].read_text(errors="replace")} if name in files else {}
    problems = report.problems
    if digests:
        problems = digest_problems(manifest, digests) + problems
    with suppress(MarserveError):  # which is among the problems already
        if sources:
            reviewed.config = load_model_config(files[name], strict_handler=False)
    if not model.handler:  # default_service_handler has to name one
        problems = [problem for problem in problems if not problem.startswith("handler :")]
    reviewed.findings += from_messages(problems, "error", sources)
    reviewed.findings += from_messages(report.warnings, "note", sources)
    _review_handlers(reviewed, files, manifest, shim)


def _review_handlers(
    reviewed: Reviewed, files: dict[str, Path], manifest: Manifest, shim: Path
) -> None:
    """Of a file that another handler stands in for, nothing matters."""
    model = manifest.model
    handler = reviewed.config.use_handler or model.handler
    if handler in _UNSERVED:
        text = f"handler {handler}: {_UNSERVED[handler]} runtime is not served"
        remedy = "transformer_handler serves Hugging Face models; other engines need a handler file"
        reviewed.findings.append(Finding("error", text, remedy, MANIFEST_PATH))
    if manifest.runtime == "LSP":
        reviewed.findings.append(Finding("error", "runtime LSP", _CPP, MANIFEST_PATH))
        return
    own = {name.split("/")[0].removesuffix(".py") for name in files}
    main = f"{handler.partition(':')[0].removesuffix('.py')}.py"
    replaced = f"{model.handler.partition(':')[0].removesuffix('.py')}.py"
    for name, path in files.items():
        if not name.endswith(".py") or (reviewed.config.use_handler and name == replaced):
            continue
        found = review_code(path, name, own, model.requirements_file, shim, handler=name == main)
        if not (reviewed.config.use_venv and _brings_transformers_4(files, model)):
            reviewed.findings += found
        else:
            reviewed.findings += [item for item in found if not is_removed_call(item)]
