"""MLServer's own client for files of requests, `mlserver infer`, and our server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.differential.peers import MLServer, why_not
from tests.e2e.running import running


def request(number: int) -> dict[str, Any]:
    data = {"name": "x", "datatype": "INT32", "shape": [1, 2], "data": [number, number * 2]}
    return {"id": f"line {number}", "inputs": [data]}


@pytest.mark.parametrize("flags", [(), ("--batch-size", "4"), ("--binary-data",)])
def test_a_file_of_requests_is_answered_line_by_line(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    if problem := why_not(MLServer):
        pytest.skip(problem)
    asked, answered = tmp_path / "asked.jsonl", tmp_path / "answered.jsonl"
    asked.write_text("".join(json.dumps(request(number)) + "\n" for number in range(10)))
    for server in running(tmp_path / "served"):
        server.pack("tensors", "tensors")
        address = f"localhost:{server.start().ports['inference']}"
        command = [str(MLServer.installed() / "bin" / "mlserver"), "infer", "--url", address]
        command += ["--model-name", "tensors", "--input-data-path", str(asked), "--workers", "2"]
        command += ["--output-data-path", str(answered), *flags]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr[-3000:]

    found = [json.loads(line) for line in answered.read_text().splitlines()]
    sums = {answer["id"]: answer["outputs"][0]["data"] for answer in found}
    assert sums == {f"line {number}": [number, number * 2] for number in range(10)}
