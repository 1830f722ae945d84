"""What images and clients made for TorchServe rely on: keys, routes, variables, layouts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.e2e.running import BIN, Running, running


def test_one_rule_of_keys_for_all_paths(tmp_path: Path) -> None:
    """Keys from a file of the orchestrator and from the environment, none from key_file.json."""
    secret = tmp_path / "secret"
    secret.write_text("inference-key-of-a-file\n")
    environment = {
        "MARSERVE_INFERENCE_KEY_FILE": str(secret),
        "MARSERVE_MANAGEMENT_KEY": "management-key",
        "MARSERVE_API_KEY": "renewal-key",
    }
    for server in running(tmp_path, arguments=(), environment=environment):
        server.pack("a", "echo")
        server.start()

        def status(
            kind: str, path: str, key: str = "", method: str = "GET", server: Running = server
        ) -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return server.ask(method, path, headers=headers, kind=kind).status

        inference, management = "inference-key-of-a-file", "management-key"
        for path in (
            "/ping",
            "/predictions/a",
            "/invocations",
            "/models/a/invoke",
            "/v1/models/a:predict",
        ):
            assert 400 == status("inference", path), path
            assert 400 == status("inference", path, management), path
            assert 200 == status("inference", path, inference), path
        for path in ("/models", "/models/a", "/v1/models/a"):
            assert 400 == status("management", path), path
            assert 400 == status("management", path, inference), path
            assert 200 == status("management", path, management), path
        for kind, right in (("inference", inference), ("management", management)):
            assert 400 == status(kind, "/no/such/path"), "what exists is not told to strangers"
            assert 404 == status(kind, "/no/such/path", right)
        assert 200 == status("metrics", "/metrics")
        message = server.ask("GET", "/ping").message
        assert "send 'Authorization: Bearer KEY' with the inference key of key_file.json" in message
        assert str(tmp_path) not in message
        assert not (tmp_path / "key_file.json").exists()


def test_the_file_of_keys_is_for_its_owner(tmp_path: Path) -> None:
    for server in running(tmp_path, arguments=()):
        server.pack("a", "echo")
        server.start()
        path = tmp_path / "key_file.json"
        key = json.loads(path.read_text())["inference"]["key"]
        headers = {"Authorization": f"Bearer {key}"}

        assert 0o600 == path.stat().st_mode & 0o777
        assert 200 == server.ask("GET", "/ping", headers=headers).status


def test_the_routes_of_sagemaker(tmp_path: Path) -> None:
    for server in running(tmp_path, models="a.mar"):
        for name in ("a", "b"):
            server.pack(name, "echo")
        server.start()
        headers = {"Content-Type": "text/plain"}
        plain = server.ask("POST", "/invocations", "text", headers)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        named = server.ask("POST", "/invocations?model_name=a&extra=7", "x=1", form)
        routed = server.ask("POST", "/models/a/invoke?model_name=a&extra=7", "x=1", form)
        server.manage("POST", "/models?url=b.mar&initial_workers=1")
        beside = server.ask("POST", "/invocations", "text", headers)
        server.manage("DELETE", "/models/a")
        without = server.ask("POST", "/invocations", "text", headers)

        assert [200, 200, 200] == [plain.status, named.status, routed.status]
        assert named.text == routed.text
        assert {"model_name": "a", "extra": "7", "x": "1"} == named.json
        assert "text" == plain.text
        assert 200 == beside.status, "the only model named at start is meant"
        assert plain.text == beside.text
        assert 200 == without.status, "the only one there is"


def test_settings_from_the_environment(tmp_path: Path) -> None:
    environment = {
        "TS_DEFAULT_WORKERS_PER_MODEL": "2",
        "TS_JOB_QUEUE_SIZE": "7",
        "TS_ENABLE_MODEL_API": "true",
    }
    arguments = ("--disable-token-auth",)
    for switch, workers in (("true", 2), ("false", 1)):
        properties = f"enable_envvars_config={switch}\n"
        root = tmp_path / switch
        for server in running(
            root, properties=properties, environment=environment, arguments=arguments
        ):
            server.pack("a", "echo")
            server.start()

            assert workers == len(server.worker_pids("a"))
            status = server.manage("POST", "/models?url=a.mar&model_name=b").status
            assert (200 if switch == "true" else 405) == status


def test_the_layout_of_kserve(tmp_path: Path) -> None:
    """Its agent mounts config/config.properties and model-store/, and starts with both named."""
    snapshot = {
        "name": "startup.cfg",
        "modelCount": 1,
        "models": {
            "a": {
                "1.0": {
                    "defaultVersion": True,
                    "marName": "a.mar",
                    "minWorkers": 1,
                    "maxWorkers": 5,
                    "batchSize": 1,
                    "maxBatchDelay": 10,
                    "responseTimeout": 120,
                }
            }
        },
    }
    properties = (
        "enable_metrics_api=true\nmetrics_format=prometheus\nnumber_of_netty_threads=4\n"
        "job_queue_size=10\nenable_envvars_config=true\ninstall_py_dep_per_model=true\n"
        f"model_snapshot={json.dumps(snapshot)}\n"
    )
    environment = {"TS_SERVICE_ENVELOPE": "kserve"}
    for server in running(tmp_path, properties=properties, environment=environment, models=None):
        server.pack("a", "echo")
        server.start()
        body = json.dumps({"instances": [{"data": "one"}]})
        headers = {"Content-Type": "application/json"}
        predicted = server.ask("POST", "/v1/models/a:predict", body, headers)
        ready = server.manage("GET", "/v1/models/a")
        described = server.describe("a")

        assert 200 == predicted.status, predicted.text
        assert ["predictions"] == list(predicted.json)
        assert {"name": "a", "ready": True} == ready.json
        assert (1, 5) == (described["minWorkers"], described["maxWorkers"])


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("PKCS12", "openssl pkcs12 -in store.ks -nokeys -out cert.pem"),
        ("JKS", "keytool -importkeystore -srckeystore store.ks -destkeystore store.p12"),
    ],
)
def test_a_keystore_is_refused_with_the_commands_that_convert_it(
    tmp_path: Path, kind: str, command: str
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store.ks").write_bytes(b"a keystore")
    lines = ["inference_address=https://127.0.0.1:25300", "keystore=store.ks"]
    (tmp_path / "config.properties").write_text("\n".join([*lines, f"keystore_type={kind}"]))
    run = [str(BIN / "serve"), "--start", "--model-store", "store"]
    done = subprocess.run(run, cwd=tmp_path, check=False, capture_output=True, timeout=60)

    assert 1 == done.returncode
    assert command in done.stderr.decode()
    assert "certificate_file and private_key_file" in done.stderr.decode()
