"""Requests that a fuzzer makes of our own API description: none is a fault of the server."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.differential.environments import cached, reason
from tests.e2e.running import Running, running

CONFIG = """\
# 501 is what is not offered, 503 what is busy or asleep, 504 a time limit that the request set.
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501", "503", "504"]

[parameters]
"""
KNOWN = '"path.model" = "fuzzed"\n"path.model_name" = "fuzzed"\n"path.version" = "1.0"\n'
FEW = '"query.min_worker" = 1\n"query.max_worker" = 1\n'  # else it asks for as many as it likes


@pytest.fixture(scope="module")
def fuzzer() -> Path:
    try:
        return cached("schemathesis", "schemathesis==4.32.5") / "bin" / "schemathesis"
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(reason("schemathesis", error))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    arguments = ("--disable-token-auth",)  # without the model API, so that the model stays
    for server in running(tmp_path_factory.mktemp("fuzzed"), arguments=arguments):
        server.pack("fuzzed", "fuzzed")
        yield server.start()


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("inference", KNOWN), ("inference", ""), ("management", KNOWN + FEW)],
    ids=["a-model", "no-model", "management"],
)
def test_no_request_is_a_fault_of_the_server(
    fuzzer: Path, server: Running, tmp_path: Path, kind: str, parameters: str
) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG + parameters)
    address = f"http://127.0.0.1:{server.ports[kind]}"
    command = [str(fuzzer), "--config-file", str(config), "run", f"{address}/api-description"]
    command += ["--url", address, "--checks", "not_a_server_error", "--max-examples", "4"]
    command += ["--seed", "1", "--no-shrink", "--continue-on-failure"]
    command += ["--phases", "fuzzing", "--request-timeout", "20"]
    command += ["--suppress-health-check", "all", "--warnings", "off", "--no-color"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )

    made = re.search(r"([\d,]+) generated", run.stdout)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert made is not None, run.stdout[-2000:]
    assert int(made[1].replace(",", "")) > 20
    assert server.predict("fuzzed", "x").text == "1 parts"
    assert "Traceback" not in (server.root / "logs" / "ts_log.log").read_text()
