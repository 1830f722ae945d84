"""Token authorization: who may predict, who may manage, and the file that holds the keys."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.errors import ConfigError
from marserve.frontend.errors import InvalidKey

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

KEY_FILE = "key_file.json"
_EXPIRING = ("management", "inference")
_BEARER = re.compile(r"Bearer\s+(\S+)")
_KEY_BYTES = 24
_REFUSED = "Token either incorrect, expired, or not provided correctly"
_HOW = (
    "No Authorization header came with the request: send 'Authorization: Bearer KEY' with the {}"
    f" key of {KEY_FILE}, which is where the server was started; --disable-token-auth serves"
    " without keys"
)


class TokenAuth:
    """The keys of one server.

    The ``management`` and ``inference`` keys open their surfaces and expire; the ``API`` key renews
    them. Keys that the environment gives stay as they are and are not written to the file.

    Args:
        config: Says whether keys are asked for, for how long they hold, and which are given.
        directory: Where ``key_file.json`` is written, readable for its owner alone.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: If the key file cannot be written.
    """

    def __init__(
        self, config: ServerConfig, directory: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.enabled = not config.disable_token_authorization
        self.path = directory / KEY_FILE
        self._clock = clock
        self._lifetime_s = config.token_expiration_min * 60
        self._fixed = config.fixed_keys
        self._keys: dict[str, str] = {}
        self._expiry: dict[str, float] = {}
        self._header: dict[str, str] = {}
        self._written = ""
        if self.enabled:
            self._keys["API"] = self._fixed.get("API") or _new_key()
            for kind in _EXPIRING:
                self._make(kind)
            self._save()

    def check(self, kind: str, authorization: str | None) -> None:
        """Lets a request pass, or not.

        Args:
            kind: ``inference`` or ``management``.
            authorization: The request's ``Authorization`` header.

        Raises:
            InvalidKey: If the header does not hold the key, or the key has expired.
        """
        if not self.enabled:
            return
        # The usual spelling of the header is compared whole; anything else is taken apart.
        given = authorization or ""
        known = given.isascii() and hmac.compare_digest(given, self._header[kind])
        if not (known or self._matches(kind, given)) or self._clock() >= self._expiry[kind]:
            hint = "" if given else f". {_HOW.format(kind)}"
            raise InvalidKey(f"Token Authorization failed. {_REFUSED}{hint}")

    def renew(self, kind: str, authorization: str | None) -> None:
        """Replaces a key and writes the file anew.

        Args:
            kind: ``inference`` or ``management``.
            authorization: The request's ``Authorization`` header, with the API key.

        Raises:
            InvalidKey: If that is not the API key, or there is no such kind of key.
        """
        if not self.enabled:
            raise InvalidKey("Token Authentication failed. Token authorization is switched off")
        if kind not in _EXPIRING or not self._matches("API", authorization or ""):
            raise InvalidKey(f"Token Authentication failed. {_REFUSED}")
        if kind in self._fixed:
            reason = f"The {kind} key is given by the server's environment and does not expire"
            raise InvalidKey(f"Token Authentication failed. {reason}")
        self._make(kind)
        self._save()

    def close(self) -> None:
        """Removes the key file, if it still holds the keys of this server."""
        with suppress(OSError):
            if self._written and self.path.read_text() == self._written:
                self.path.unlink()

    def _matches(self, kind: str, authorization: str) -> bool:
        match = _BEARER.fullmatch(authorization)
        key = match[1] if match is not None else ""
        return key.isascii() and hmac.compare_digest(key, self._keys[kind])

    def _make(self, kind: str) -> None:
        fixed = self._fixed.get(kind)
        self._keys[kind] = fixed or _new_key()
        self._header[kind] = f"Bearer {self._keys[kind]}"
        self._expiry[kind] = float("inf") if fixed else self._clock() + self._lifetime_s

    def _save(self) -> None:
        content: dict[str, dict[str, str]] = {}
        for kind in (*_EXPIRING, "API"):
            if kind not in self._fixed:
                content[kind] = {"key": self._keys[kind]}
                if kind in self._expiry:
                    content[kind]["expiration time"] = _instant(self._expiry[kind])
        if content:
            self._written = json.dumps(content, indent=2) + "\n"
            _replace(self.path, self._written)


def _new_key() -> str:
    return secrets.token_urlsafe(_KEY_BYTES)


def _instant(epoch_s: float) -> str:
    moment = datetime.fromtimestamp(min(epoch_s, 253402300799), UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _replace(path: Path, text: str) -> None:
    """Never a moment with a half-written file, one that others can read, or a link followed."""
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(fd, "w") as file:
                file.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        hint = "start in a writable directory, or give all three MARSERVE_..._KEY variables"
        raise ConfigError(str(path), f"cannot be written: {error.strerror}", hint) from None
