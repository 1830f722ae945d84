"""The settings of V2's logging extension, and what they do to the server's log."""

from __future__ import annotations

import logging
from typing import Any

from marserve.frontend.errors import BadRequest

_SWITCHES = ("log_info", "log_warning", "log_error")
_KEYS = (*_SWITCHES, "log_verbose_level", "log_file", "log_format")
_SILENT = logging.CRITICAL + 1


class LogSettings:
    """Which lines the server's own log has; models' and access logs are not concerned."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
        }

    def values(self) -> dict[str, Any]:
        """Returns all settings."""
        return dict(self._values)

    def change(self, given: dict[str, Any]) -> dict[str, Any]:
        """Changes settings, all or none of them; returns all.

        Args:
            given: The least level that is logged follows from ``log_verbose_level`` and the three
                switches; ``log_file`` and ``log_format`` can only be what they are.

        Raises:
            BadRequest: If a key or a value is wrong; naming the key.
        """
        for key, value in given.items():
            self._check(key, value)
        self._values |= given
        logging.getLogger().setLevel(self._level())
        return self.values()

    def _check(self, key: str, value: Any) -> None:
        if key not in _KEYS:
            raise BadRequest(f"{key:.100}: unknown key; known: {', '.join(_KEYS)}")
        if key in _SWITCHES:
            if not isinstance(value, bool):
                raise BadRequest(f"{key}: expected true or false, got {value!r:.40}")
        elif key == "log_verbose_level":
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 0 <= value < 1 << 32:
                raise BadRequest(f"{key}: expected a whole number, 0 or above, got {value!r:.40}")
        elif value != self._values[key]:
            raise BadRequest(f"{key}: is set when the server starts (LOG_LOCATION, log_format)")

    def _level(self) -> int:
        values = self._values
        if values["log_verbose_level"]:
            return logging.DEBUG
        levels = (logging.INFO, logging.WARNING, logging.ERROR)
        pairs = zip(_SWITCHES, levels, strict=True)
        return next((level for key, level in pairs if values[key]), _SILENT)
