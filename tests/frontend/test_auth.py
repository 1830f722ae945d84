from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from marserve.archiver.errors import ConfigError
from marserve.frontend.auth import KEY_FILE, TokenAuth
from marserve.frontend.config import load_config
from marserve.frontend.errors import InvalidKey


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make(
    tmp_path: Path, text: str = "", environ: dict[str, str] | None = None
) -> tuple[TokenAuth, Clock]:
    (tmp_path / "config.properties").write_text(text)
    config = load_config({"model_store": str(tmp_path)}, environ or {}, tmp_path)
    clock = Clock()
    return TokenAuth(config, tmp_path, clock), clock


def key(tmp_path: Path, kind: str) -> str:
    content = json.loads((tmp_path / KEY_FILE).read_text())
    return str(content[kind]["key"])


def refused(auth: TokenAuth, kind: str, header: str | None) -> bool:
    try:
        auth.check(kind, header)
    except InvalidKey:
        return True
    return False


def test_the_key_file(tmp_path: Path) -> None:
    make(tmp_path, "token_expiration_min=0.25")
    path = tmp_path / KEY_FILE
    content = json.loads(path.read_text())

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert ["management", "inference", "API"] == list(content)
    assert "1970-01-12T13:46:55.000000Z" == content["inference"]["expiration time"]
    assert {"key"} == set(content["API"])
    assert 3 == len({entry["key"] for entry in content.values()})
    assert [path.name, "config.properties"] == sorted(os.listdir(tmp_path), reverse=True)


@pytest.mark.parametrize("kind", ["inference", "management"])
def test_each_surface_has_its_key(tmp_path: Path, kind: str) -> None:
    auth, _ = make(tmp_path)
    right = key(tmp_path, kind)
    wrong = [key(tmp_path, other) for other in ("inference", "management", "API") if other != kind]

    assert not refused(auth, kind, f"Bearer {right}")
    assert not refused(auth, kind, f"Bearer \t {right}")
    headers = [
        None,
        "",
        right,
        f"bearer {right}",
        f"Bearer {right} x",
        f"Bearer {right}x",
        f"Bearer {right[:-1]}",
        "Bearer é",
        "Bearer ",
        *(f"Bearer {other}" for other in wrong),
    ]
    assert all(refused(auth, kind, header) for header in headers)


def test_keys_expire_and_are_renewed_with_the_api_key(tmp_path: Path) -> None:
    auth, clock = make(tmp_path)
    old, api = key(tmp_path, "inference"), key(tmp_path, "API")

    clock.now += 3599
    assert not refused(auth, "inference", f"Bearer {old}")
    clock.now += 1
    assert refused(auth, "inference", f"Bearer {old}")

    for kind, header in (("inference", f"Bearer {old}"), ("API", f"Bearer {api}"), ("x", None)):
        with pytest.raises(InvalidKey, match="Token Authentication failed"):
            auth.renew(kind, header)
    auth.renew("inference", f"Bearer {api}")

    new = key(tmp_path, "inference")
    assert old != new
    assert api == key(tmp_path, "API")
    assert not refused(auth, "inference", f"Bearer {new}")
    assert refused(auth, "inference", f"Bearer {old}")


def test_given_keys_stay_and_are_not_written(tmp_path: Path) -> None:
    auth, clock = make(tmp_path, "", {"MARSERVE_INFERENCE_KEY": "a-given-key"})
    clock.now += 1e9

    assert not refused(auth, "inference", "Bearer a-given-key")
    assert "a-given-key" not in (tmp_path / KEY_FILE).read_text()
    with pytest.raises(InvalidKey, match="does not expire"):
        auth.renew("inference", f"Bearer {key(tmp_path, 'API')}")


def test_without_generated_keys_there_is_no_file(tmp_path: Path) -> None:
    environ = {
        f"MARSERVE_{kind}_KEY": f"given-{kind}" for kind in ("INFERENCE", "MANAGEMENT", "API")
    }
    make(tmp_path, "", environ)

    assert not (tmp_path / KEY_FILE).exists()


def test_switched_off(tmp_path: Path) -> None:
    auth, _ = make(tmp_path, "disable_token_authorization=true")

    assert not refused(auth, "inference", None)
    assert not (tmp_path / KEY_FILE).exists()
    with pytest.raises(InvalidKey, match="switched off"):
        auth.renew("inference", None)


def test_only_the_own_file_is_removed(tmp_path: Path) -> None:
    first, _ = make(tmp_path)
    second, _ = make(tmp_path)
    first.close()

    assert (tmp_path / KEY_FILE).exists()
    second.close()
    assert not (tmp_path / KEY_FILE).exists()


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / KEY_FILE).symlink_to(target)
    make(tmp_path)

    assert "precious" == target.read_text()
    assert not (tmp_path / KEY_FILE).is_symlink()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = load_config({"model_store": str(tmp_path)}, {}, tmp_path)

    with pytest.raises(ConfigError, match=r"key_file\.json: cannot be written"):
        TokenAuth(config, tmp_path / "absent")
