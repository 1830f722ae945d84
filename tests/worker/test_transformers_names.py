from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marserve.archiver.user_cache import user_cache
from marserve.worker import transformers_names
from marserve.worker.transformers_names import Names, remembering

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
structure = [sorted(transformers._class_to_module.items()), sorted(dir(transformers))]
print(json.dumps([structure, len(texts), BertConfig().model_type]))
"""


def _import_transformers(cache: Path) -> tuple[list[list[str]], int, str]:
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
    assert "LlamaForCausalLM" in names[1]
    assert model_type == "bert"


def test_transformers_is_imported_where_nothing_can_be_kept(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")

    names, read, _ = _import_transformers(in_the_way)

    assert read > 1000
    assert "LlamaForCausalLM" in names[1]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models = tmp_path / "library" / "models"
    (models / "one").mkdir(parents=True)
    (models / "one" / "modeling_one.py").write_text("One")
    for number in range(100):
        (models / "one" / f"other_{number}.py").write_text(f"Other{number}")
    (models.parent / "__init__.py").write_text("version 1")
    return models


class _Scan:
    """Offers each file's text as a name of its module; counts how often it is asked."""

    __name__ = "scan"

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, package: str | Path, prefix: str | None = None) -> Names:
        self.times += 1
        directory = Path(package) if Path(package).is_dir() else Path(package).parent
        files = sorted(directory.rglob("*.py"))
        offered = {f"{prefix}.{file.parent.name}.{file.stem}": {file.read_text()} for file in files}
        return {frozenset({"torch"}): offered, frozenset(): {}}


def _names(scan: _Scan, package: str | Path, prefix: str = "models", rules: bytes = b"") -> Names:
    """What a process that has just begun finds."""
    return remembering(scan, rules)(package, prefix=prefix)


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
    "changed", ["models/one/modeling_one.py", "models/two/modeling_two.py", "__init__.py"]
)
def test_names_are_found_anew_after_a_change(package: Path, changed: str) -> None:
    scan = _Scan()
    _names(scan, package)
    path = package.parent / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text("Changed1")

    assert _names(scan, package) == scan(package, "models")
    assert scan.times == 3


def test_names_are_found_anew_after_a_change_of_equal_size(package: Path) -> None:
    scan = _Scan()
    _names(scan, package)
    (package / "one" / "modeling_one.py").write_text("Two")

    assert _names(scan, package)[frozenset({"torch"})]["models.one.modeling_one"] == {"Two"}


def test_names_are_found_anew_without_a_file(package: Path) -> None:
    scan = _Scan()
    _names(scan, package)
    (package / "one" / "modeling_one.py").unlink()

    assert "models.one.modeling_one" not in _names(scan, package)[frozenset({"torch"})]


def test_names_are_found_anew_by_other_rules(package: Path) -> None:
    scan = _Scan()
    _names(scan, package)
    _names(scan, package, rules=b"other")

    assert scan.times == 2


def test_what_changed_under_a_running_process_is_not_kept_by_it(package: Path) -> None:
    scan = _Scan()
    old = remembering(scan, b"")
    time.sleep(0.05)  # more than the clock of the file system takes for a step
    (package / "one" / "modeling_one.py").write_text("New")
    old(package, prefix="models")
    _names(scan, package)

    assert scan.times == 2


def test_what_others_may_have_changed_is_not_kept(package: Path, tmp_path: Path) -> None:
    shared: Names = {frozenset(): {"models.one": {"One"}}}
    scan = remembering(lambda package, prefix=None: shared, b"")
    scan(package, prefix="models")[frozenset()]["more"] = {"More"}
    _only_file(tmp_path).unlink()
    scan(package, prefix="models")

    assert not list((tmp_path / "cache" / "marserve" / "transformers").iterdir())


def _only_file(tmp_path: Path) -> Path:
    (kept,) = (tmp_path / "cache" / "marserve" / "transformers").iterdir()
    return kept


def test_a_file_stands_for_its_directory(package: Path) -> None:
    scan = _Scan()
    first = _names(scan, package)

    assert _names(scan, str(package / "__init__.py")) == first
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
    kept = _only_file(tmp_path)
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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_nothing_is_kept_in_a_directory_of_another_user(package: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 65534, 65534)
    _names(_Scan(), package)

    assert not list((tmp_path / "cache").iterdir())


def test_names_of_another_form_are_not_kept(package: Path) -> None:
    odd = {frozenset({"torch"}): {"models.one": object()}}

    def scan(*_: object) -> Names:
        return odd  # type: ignore[return-value]

    assert remembering(scan, b"")(package) is odd
    assert remembering(scan, b"")(package) is odd


def test_calls_of_another_form_are_handed_on(package: Path) -> None:
    def scan(module_path: object, *more: object, depth: int = 0) -> Names:
        return {frozenset(): {str(module_path): {str((more, depth))}}}

    handed = remembering(scan, b"")

    assert handed(module_path=3) == scan(3)
    assert handed(package, "models", depth=2) == scan(package, "models", depth=2)
    assert handed(None) == scan(None)


def test_a_scan_that_knows_no_prefix_is_asked_as_ever(package: Path) -> None:
    @functools.lru_cache
    def scan(module_path: Path) -> Names:
        return {frozenset(): {"one": {"One"}}}

    handed = remembering(scan, b"")

    assert handed(package) == handed(package) == {frozenset(): {"one": {"One"}}}
    assert scan.cache_info().misses == 1
    handed.cache_clear()  # type: ignore[attr-defined]
    assert scan.cache_info().misses == 0


def test_the_cache_of_the_user_is_never_below_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")

    assert user_cache("kind") == Path.home() / ".cache" / "marserve" / "kind"
