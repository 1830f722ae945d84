from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from marserve.worker import transformers_names
from marserve.worker.transformers_names import Names, names_of

# Imports transformers, and tells what it offers and how many of its model files were read for it.
_IMPORT = """
import json, sys
from marserve.worker.transformers_names import keep_names

read = []
sys.addaudithook(lambda event, args: event == "open" and read.append(str(args[0])))
keep_names()
import transformers
from transformers import BertConfig, BertForSequenceClassification
texts = [name for name in read if "transformers/models/" in name and name.endswith(".py")]
print(json.dumps([sorted(dir(transformers)), len(texts), BertConfig().model_type]))
"""


def _import_transformers(cache: Path) -> tuple[list[str], int, str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", _IMPORT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    names, read, model_type = json.loads(done.stdout)
    return names, read, model_type


def test_transformers_offers_the_same_without_reading_its_model_files(tmp_path: Path) -> None:
    first_names, first_read, _ = _import_transformers(tmp_path)
    names, read, model_type = _import_transformers(tmp_path)

    assert first_read > 1000
    assert read < 50  # of the packages alone from which something was imported
    assert names == first_names
    assert "LlamaForCausalLM" in names
    assert model_type == "bert"


def test_transformers_is_imported_where_nothing_can_be_kept(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")

    names, read, _ = _import_transformers(in_the_way)

    assert read > 1000
    assert "LlamaForCausalLM" in names


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models = tmp_path / "library" / "models"
    (models / "one").mkdir(parents=True)
    (models / "one" / "modeling_one.py").write_text("One")
    for number in range(100):
        (models / "one" / f"other_{number}.py").write_text(f"Other{number}")
    (models.parent / "__init__.py").write_text("version 1")
    (models.parent / "scanner.py").write_text("scanner 1")
    return models


class _Scan:
    """Offers each file's text as a name of its module; counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, package: str | Path, prefix: str | None = None) -> Names:
        self.times += 1
        files = sorted(Path(package).rglob("*.py"))
        offered = {f"{prefix}.{file.parent.name}.{file.stem}": {file.read_text()} for file in files}
        return {frozenset({"torch"}): offered, frozenset(): {}}


def _names(scan: _Scan, package: Path, prefix: str = "models") -> Names:
    return names_of(scan, str(package.parent / "scanner.py"), package, prefix)


def test_names_are_kept_and_may_be_changed_by_whoever_asked(package: Path) -> None:
    scan = _Scan()
    first = _names(scan, package)
    again = _names(scan, package)
    again[frozenset()]["more"] = {"More"}

    assert set(first) == {frozenset({"torch"}), frozenset()}
    assert first[frozenset({"torch"})]["models.one.modeling_one"] == {"One"}
    assert _names(scan, package) == first
    assert scan.times == 1


@pytest.mark.parametrize(
    "changed",
    ["models/one/modeling_one.py", "models/two/modeling_two.py", "__init__.py", "scanner.py"],
)
def test_names_are_found_anew_after_a_change(package: Path, changed: str) -> None:
    scan = _Scan()
    _names(scan, package)
    path = package.parent / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text("Changed1")

    assert _names(scan, package) == scan(package, "models")
    assert scan.times == 3


def test_a_file_stands_for_its_directory(package: Path) -> None:
    scan = _Scan()
    scan_file = str(package.parent / "scanner.py")
    first = _names(scan, package)

    assert names_of(scan, scan_file, str(package / "__init__.py"), "models") == first
    assert scan.times == 1


def test_names_of_few_files_are_not_kept(package: Path) -> None:
    scan = _Scan()
    for path in (package / "one").glob("other_*.py"):
        path.unlink()
    _names(scan, package)
    _names(scan, package)

    assert scan.times == 2


def test_names_of_another_prefix_are_others(package: Path) -> None:
    scan = _Scan()
    _names(scan, package)

    assert "other.one.modeling_one" in _names(scan, package, "other")[frozenset({"torch"})]


@pytest.mark.parametrize("spoiled", [b"", b"\x00" * 40, "half"])
def test_a_spoiled_file_is_written_anew(
    package: Path, tmp_path: Path, spoiled: bytes | str
) -> None:
    scan = _Scan()
    first = _names(scan, package)
    (kept,) = (tmp_path / "cache" / "marserve" / "transformers").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-5] if isinstance(spoiled, str) else spoiled)

    assert _names(scan, package) == first
    assert kept.read_bytes() == whole
    assert scan.times == 2


def test_whoever_has_no_home_has_nothing_kept(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless(kind: str) -> Path:
        raise RuntimeError(f"Could not determine home directory for {kind}.")

    monkeypatch.setattr(transformers_names, "user_cache", homeless)
    scan = _Scan()

    assert _names(scan, package) == _names(scan, package)
    assert scan.times == 2


def test_names_of_another_form_are_not_kept(package: Path) -> None:
    odd = {frozenset({"torch"}): {"models.one": object()}}

    def scan(*_: object) -> Names:
        return odd  # type: ignore[return-value]

    assert names_of(scan, str(package.parent / "scanner.py"), package) is odd
    assert names_of(scan, str(package.parent / "scanner.py"), package) is odd
