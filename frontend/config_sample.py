"""Prints the sample ``config.properties``: ``python -m marserve.frontend.config_sample``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from marserve.frontend.config_keys import KEYS, environment_variable

_INTRODUCTION = """\
The settings of the server, every one with its default. Take the "#" away from a line to change it.

The file is found by TS_CONFIG_FILE, else serve --ts-config, else as ./config.properties.
What is set here is overridden by flags of serve, and, with enable_envvars_config=true, all of it
by the environment: TS_ and the key in capitals, if no other variable is named below.
$$NAME$$ in a value stands for the environment variable NAME.
serve --print-config shows what is in force, and why.
"""
_GROUPS = {
    "inference_address": "Where to listen: http://host:port, https://host:port or unix:/path",
    "enable_grpc": "gRPC",
    "model_store": "Which models",
    "default_workers_per_model": "Workers and queues",
    "max_request_size": "Limits",
    "disable_token_authorization": "Security",
    "enable_metrics_api": "Metrics and logs",
    "compat": "The server itself",
    "ts_open_inference_protocol": "Accepted, without effect",
}


def sample() -> str:
    """Returns the text of the sample."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (f"# {line}".rstrip() for line in _INTRODUCTION.splitlines())
    for name, key in KEYS.items():
        if name in _GROUPS:
            yield from ("", f"## {_GROUPS[name]}")
        doc = f"{key.doc} Without effect: {key.notice}." if key.notice else key.doc
        variable = environment_variable(name)
        if variable is None:
            doc += " Not set by the environment."
        elif key.env:
            doc += f" Environment: {variable}."
        yield ""
        yield from textwrap.wrap(doc, 98, initial_indent="# ", subsequent_indent="# ")
        yield f"#{name}={key.default}"


if __name__ == "__main__":
    print(sample(), end="")
