"""The command archive-workflow, and what comes out of a ``.war``, ours or the original tool's."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.workflow_archive import MANIFEST_PATH, unpack_workflow

SPEC = "models: {m: {url: m.mar}}\ndag: {pre: [m], m: [post]}\n"
HANDLER = (
    "def pre(data, context):\n    return data\n\n\ndef post(data, context):\n    return data\n"
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "steps.py").write_text(HANDLER)
    (tmp_path / "words.txt").write_text("a b")
    return tmp_path


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("archive-workflow")
    return subprocess.run([tool, *flags], cwd=folder, capture_output=True, text=True, check=False)


def pack(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    flags = ("--workflow-name", "flow", "--spec-file", "spec.yaml", "--handler", "steps.py")
    return run(folder, *flags, *more)


def test_packed_and_unpacked(sources: Path) -> None:
    assert pack(sources, "--extra-files", "words.txt").returncode == 0

    archive = unpack_workflow(sources / "flow.war", sources / "out")

    assert (archive.name, archive.handler) == ("flow", "steps.py")
    assert list(archive.spec.nodes) == ["pre", "m", "post"]
    assert (archive.directory / "words.txt").read_text() == "a b"


def test_the_layout_is_that_of_torchserve(sources: Path) -> None:
    pack(sources)

    with zipfile.ZipFile(sources / "flow.war") as war:
        assert war.namelist() == ["spec.yaml", "steps.py", MANIFEST_PATH]
        manifest = json.loads(war.read(MANIFEST_PATH))
    names = {"workflowName": "flow", "specFile": "spec.yaml", "handler": "steps.py"}
    assert manifest["workflow"] == names
    assert manifest.keys() == {"createdOn", "workflow", "archiverVersion"}


def test_the_same_input_gives_the_same_bytes(sources: Path) -> None:
    pack(sources)
    first = (sources / "flow.war").read_bytes()

    assert pack(sources, "-f").returncode == 0
    assert (sources / "flow.war").read_bytes() == first


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--export-path", "nowhere"), "error: --export-path: is no directory: nowhere"),
        (("--extra-files", "no.txt"), "error: --extra-files: file not found: no.txt"),
        (("--handler", "words.txt"), "cannot be parsed as Python"),
        (("--spec-file", "words.txt"), "words.txt: $: expected a mapping, got str"),
        (("--workflow-name", "a/b"), "workflow name 'a/b' is not allowed"),
    ],
)
def test_errors_name_what_is_wrong(sources: Path, flags: tuple[str, str], words: str) -> None:
    done = pack(sources, *flags)

    assert done.returncode == 1
    assert words in done.stderr
    assert not list(sources.glob("*.war"))
    assert not list(sources.glob(".*"))


def test_nothing_is_overwritten_unasked(sources: Path) -> None:
    pack(sources)

    done = pack(sources)

    assert (done.returncode, "already exists: give --force" in done.stderr) == (1, True)


def test_functions_must_be_there(sources: Path) -> None:
    (sources / "steps.py").write_text("def pre(data, context):\n    return data\n")

    assert (
        "$.dag.post: is no model; expected a function post(data, context)" in pack(sources).stderr
    )


def test_functions_need_a_handler(sources: Path) -> None:
    done = run(sources, "--workflow-name", "flow", "--spec-file", "spec.yaml")

    assert "$.dag.pre: is no model, and there is no handler file" in done.stderr


def war(folder: Path, manifest: object, files: dict[str, str]) -> Path:
    path = folder / "made.war"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        if manifest is not None:
            archive.writestr(MANIFEST_PATH, json.dumps(manifest))
    return path


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        [],
        {"workflow": 1},
        {"workflow": {"workflowName": "x"}},
        {"workflow": {"workflowName": "../x", "specFile": "spec.yaml"}},
        {"workflow": {"workflowName": "x", "specFile": "../../spec.yaml"}},
        {"workflow": {"workflowName": "x", "specFile": "other.yaml"}},
        {"workflow": {"workflowName": "x", "specFile": "spec.yaml", "handler": "/etc/passwd"}},
        {"workflow": {"workflowName": "x", "specFile": "spec.yaml", "handler": ["steps.py"]}},
    ],
)
def test_archives_that_are_no_workflow(tmp_path: Path, manifest: object) -> None:
    path = war(tmp_path, manifest, {"spec.yaml": SPEC, "steps.py": HANDLER})

    with pytest.raises((ArchiveError, ConfigError)):
        unpack_workflow(path, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_members_outside_are_refused(tmp_path: Path) -> None:
    path = war(tmp_path, None, {"../evil.py": "x"})

    with pytest.raises(ArchiveError):
        unpack_workflow(path, tmp_path / "out")

    assert not (tmp_path / "evil.py").exists()


def test_what_the_original_tool_packed_is_read(sources: Path) -> None:
    tool = Path(sys.executable).with_name("torch-workflow-archiver")
    flags = ["--workflow-name", "flow", "--spec-file", "spec.yaml", "--handler", "steps.py"]
    subprocess.run([tool, *flags], cwd=sources, check=True, capture_output=True)

    archive = unpack_workflow(sources / "flow.war", sources / "out")

    assert (archive.name, archive.handler) == ("flow", "steps.py")
    assert list(archive.spec.nodes) == ["pre", "m", "post"]
