from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ConfigError
from marserve.frontend.config import (
    Address,
    LoadItem,
    ModelDefaults,
    ServerConfig,
    describe_config,
    load_config,
)
from marserve.frontend.config_keys import KEYS
from marserve.frontend.config_sample import sample

ROOT = Path(__file__).parents[2]


def load(
    tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object
) -> ServerConfig:
    (tmp_path / "config.properties").write_text(text)
    return load_config({"model_store": str(tmp_path), **flags}, environ or {}, tmp_path)


def refusal(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ)
    return str(caught.value)


# -- the sample ------------------------------------------------------------------------------------


def test_the_sample_is_the_table() -> None:
    assert sample() == (ROOT / "config.properties").read_text()


def test_the_sample_shows_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^#(?=\w+=)", "", sample())
    shown, plain = load(tmp_path, text), load(tmp_path)

    assert [getattr(plain, key) for key in KEYS] == [getattr(shown, key) for key in KEYS]
    assert len(KEYS) == len(re.findall(r"(?m)^\w+=", text))


# -- precedence ------------------------------------------------------------------------------------


def test_file_then_flags_then_environment(tmp_path: Path) -> None:
    environ = {"TS_LOAD_MODELS": "env.mar", "TS_JOB_QUEUE_SIZE": "7"}
    text = "load_models=file.mar\njob_queue_size=5\n"

    assert (LoadItem(None, "file.mar"),) == load(tmp_path, text).load_models
    config = load(tmp_path, text, environ, load_models=("flag.mar", "b=c.mar"))
    assert (LoadItem(None, "flag.mar"), LoadItem("b", "c.mar")) == config.load_models
    assert 5 == config.job_queue_size
    config = load(tmp_path, text + "enable_envvars_config=true", environ, load_models=("flag.mar",))
    assert (LoadItem(None, "env.mar"),) == config.load_models
    assert 7 == config.job_queue_size
    assert "environment variable TS_JOB_QUEUE_SIZE" == config.sources["job_queue_size"]
    assert "config.properties:3" == config.sources["enable_envvars_config"]
    assert "--model-store" == config.sources["model_store"]
    assert "default" == config.sources["max_request_size"]


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        ("TS_TOKEN_EXPIRATION_TIME_MIN", "0.25", "token_expiration_min", 0.25),
        ("TS_HEADER_KEY_SEQUENCE_ID", "x", "ts_header_key_sequence_id", "x"),
        ("TS_METRIC_TIME_INTERVAL", "1", "metric_time_interval", 60),
        ("TS_MODELS", "no json", "models", {}),
        ("TS_ALLOWED_URLS", "http://.*", "allowed_urls", ()),
        ("TS_JOB_QUEUE_SIZE", "", "job_queue_size", 100),
    ],
)
def test_environment_names(
    tmp_path: Path, variable: str, value: str, key: str, expected: object
) -> None:
    config = load(tmp_path, "enable_envvars_config=true", {variable: value})

    assert expected == getattr(config, key)


def test_urls_of_the_environment_need_a_word_in_the_file(tmp_path: Path) -> None:
    text = "enable_envvars_config=true\nuse_env_allowed_urls=true"
    config = load(tmp_path, text, {"TS_ALLOWED_URLS": "https://a/.*,https://b/.*"})

    assert ["https://a/.*", "https://b/.*"] == [p.pattern for p in config.allowed_urls]
    assert config.allowed_urls[0].fullmatch("HTTPS://A/x.mar")


def test_the_open_inference_protocol_has_a_variable_of_its_own(tmp_path: Path) -> None:
    assert load(tmp_path, "", {"TS_OPEN_INFERENCE_PROTOCOL": "oip"}).ts_open_inference_protocol
    assert not load(tmp_path, "", {"TS_OPEN_INFERENCE_PROTOCOL": "x"}).ts_open_inference_protocol


def test_which_file(tmp_path: Path) -> None:
    for name, size in (("config.properties", 1), ("flag.properties", 2), ("env.properties", 3)):
        (tmp_path / name).write_text(f"job_queue_size={size}")
    flags = {"model_store": str(tmp_path)}
    asked = {**flags, "ts_config": "flag.properties"}
    environ = {"TS_CONFIG_FILE": str(tmp_path / "env.properties")}

    assert 1 == load_config(flags, {}, tmp_path).job_queue_size
    assert 2 == load_config(asked, {}, tmp_path).job_queue_size
    assert 3 == load_config(asked, environ, tmp_path).job_queue_size
    with pytest.raises(ConfigError, match="--ts-config: file not found: absent"):
        load_config({**flags, "ts_config": "absent"}, {}, tmp_path)


def test_flags_only_switch_on(tmp_path: Path) -> None:
    text = "disable_token_authorization=true"

    assert load(tmp_path, text, disable_token_authorization=False).disable_token_authorization
    assert load(tmp_path, "", disable_token_authorization=True).disable_token_authorization


def test_variables_in_values(tmp_path: Path) -> None:
    config = load(tmp_path, "load_models=$$NAME$$.mar", {"NAME": "a"})

    assert (LoadItem(None, "a.mar"),) == config.load_models
    assert "Invalid Environment Variable ABSENT" in refusal(tmp_path, "load_models=$$ABSENT$$")


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\njob_queue_size=x", ':2: job_queue_size: expected an integer >= 1, got "x"'),
        ("job_queue_size=0", 'expected an integer >= 1, got "0"'),
        ("job_queue_size=1_0", 'expected an integer >= 1, got "1_0"'),
        ("initial_worker_port=65536", "expected an integer from 1 to 65535"),
        ("debug=yes", 'expected true or false, got "yes"'),
        ("metrics_mode=loud", "expected one of log, prometheus, legacy"),
        ("token_expiration_min=0", "expected a number > 0"),
        ("inference_address=8080", "expected http://host[:port], https://host[:port] or unix:"),
        ("inference_address=http://a:99999", "expected http://host"),
        ("inference_address=unix:/" + "x" * 200, "expected http://host"),
        ("allowed_urls=(", '"(" is no regular expression: missing )'),
        ("blacklist_env_vars=" + "(" * 5000, "regular expression"),
        ("models={", "expected a JSON object"),
        ("models=[]", "expected a JSON object, got list"),
        ('models={"m":1}', "$.m: expected an object, got 1"),
        ('models={"m":{"1":{"batchSize":"x"}}}', "$.m.1.batchSize: expected an integer, got 'x'"),
        ('models={"m":{"1":{"batchsize":1}}}', 'unknown key "batchsize", did you mean batchSize?'),
        ('models={"m":{"1":{"minWorkers":3,"maxWorkers":2}}}', "3 is more than maxWorkers 2"),
        ('models={"m":{"1":{"runtimeType":"java"}}}', "expected one of python, python3, LSP"),
        ('model_snapshot={"models":{"m":{"1":{}}}}', "$.models.m.1.marName: expected the name"),
        ("load_models=a.mar,,b.mar", "expected ALL, or names"),
        ("jobqueue_size=1", ':1: unknown key "jobqueue_size" (did you mean job_queue_size?)'),
        ("zzz=1", "see the sample"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    told = refusal(tmp_path, text)

    assert message in told
    assert told.startswith("config.properties:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://0.0.0.0", Address("http", "0.0.0.0", 8081)),
        ("https://localhost", Address("https", "localhost", 8444)),
        ("http://[::1]:9", Address("http", "::1", 9)),
        ("unix:/tmp/a.sock", Address("unix", path="/tmp/a.sock")),
        ("unix:///tmp/a.sock", Address("unix", path="/tmp/a.sock")),
    ],
)
def test_addresses(tmp_path: Path, text: str, expected: Address) -> None:
    files = f"certificate_file={__file__}\nprivate_key_file={__file__}"
    config = load(tmp_path, f"management_address={text}\n{files}")

    assert expected == config.management_address
    assert ("0.0.0.0" not in text) == config.management_address.is_loopback


def test_models(tmp_path: Path) -> None:
    text = """models={\\
      "m": {"1.0": {"minWorkers": 1, "maxWorkers": "4", "batchSize": 0, "maxBatchDelay": -1}}}"""
    config = load(tmp_path, text)

    assert ModelDefaults(min_workers=1, max_workers=4) == config.models["m"]["1.0"]


def test_a_snapshot_gives_models_their_defaults(tmp_path: Path) -> None:
    text = """model_snapshot={"name":"startup.cfg","modelCount":1,"models":{"m":{"1.0":{\\
      "defaultVersion":true,"marName":"m.mar","minWorkers":1,"batchSize":2,"extra-files":"x"}}}}"""
    config = load(tmp_path, text)
    expected = ModelDefaults(default_version=True, mar_name="m.mar", min_workers=1, batch_size=2)

    assert expected == config.models["m"]["1.0"] == config.model_snapshot["m"]["1.0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALL", [LoadItem(None, "ALL")]),
        ("a.mar,all", [LoadItem(None, "ALL")]),
        ("m=a.mar , /x/y", [LoadItem("m", "a.mar"), LoadItem(None, "/x/y")]),
        ("http://h/a.mar?b=c", [LoadItem(None, "http://h/a.mar?b=c")]),
        ("m=http://h/a.mar?b=c", [LoadItem("m", "http://h/a.mar?b=c")]),
    ],
)
def test_load_models(tmp_path: Path, text: str, expected: list[LoadItem]) -> None:
    assert tuple(expected) == load(tmp_path, f"load_models={text}").load_models


def test_keys_without_effect_say_why(tmp_path: Path) -> None:
    config = load(tmp_path, "vmargs=-Xmx4g\nnumber_of_netty_threads=4\nNUM_WORKERS=1")
    notices = "\n".join(config.notices)

    assert "config.properties:1: vmargs has no effect: there is no Java" in notices
    assert "number_of_netty_threads has no effect" in notices
    assert 3 == len(config.notices)


def test_a_key_given_twice_counts_as_written_last(tmp_path: Path) -> None:
    config = load(tmp_path, "job_queue_size=1\njob_queue_size=2")

    assert 2 == config.job_queue_size
    assert ("config.properties:2: job_queue_size replaces the one in line 1",) == config.notices


# -- values together -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inference_address=https://localhost:1", "TLS needs certificate_file"),
        (
            f"inference_address=https://localhost:1\ncertificate_file={__file__}",
            "TLS needs private_key_file",
        ),
        (
            f"inference_address=https://localhost:1\nkeystore={__file__}",
            "a Java keystore is not read (give certificate_file and private_key_file",
        ),
        (
            f"metrics_address=https://127.0.0.1:8080\ncertificate_file={__file__}"
            f"\nprivate_key_file={__file__}",
            "are one port with two schemes",
        ),
        ("enable_grpc_ssl=true", "enable_grpc_ssl: TLS needs certificate_file"),
        (
            "grpc_inference_port=7071",
            "grpc_management_port: both gRPC services are to listen on port 7071",
        ),
        (
            "grpc_management_address=0.0.0.0\ndisable_token_authorization=true"
            "\nenable_model_api=true",
            "grpc_management_address: grpc://0.0.0.0:7071 without keys and with enable_model_api",
        ),
        ("model_store=absent", ""),
        ("metrics_config=absent.yaml", "no such file"),
        ("metrics_config=" + "x" * 5000, "no such file"),
        ("workflow_store=absent", "workflow_store: directory not found: absent"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, message: str) -> None:
    if text == "model_store=absent":
        (tmp_path / "config.properties").write_text(text)
        with pytest.raises(ConfigError, match="model_store: directory not found: absent"):
            load_config({}, {}, tmp_path)
    else:
        assert message in refusal(tmp_path, text)


def test_the_model_store_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Missing mandatory parameter --model-store"):
        load_config({}, {}, tmp_path)


def test_torchserves_own_metrics_file_stands_for_ours(tmp_path: Path) -> None:
    config = load(tmp_path, "metrics_config=/absent/ts/configs/metrics.yaml")

    assert config.metrics_config is None
    assert "built-in" in config.notices[0]


OPEN = "management_address=http://0.0.0.0:8081\n"


def test_strangers_may_not_register_code(tmp_path: Path) -> None:
    bare = OPEN + "disable_token_authorization=true\nenable_model_api=true\n"

    assert "lets anyone on the network run code" in refusal(tmp_path, bare)
    assert not load(tmp_path, OPEN + "enable_model_api=true").notices
    assert load(tmp_path, bare + "allow_insecure_management=true").notices
    assert load(tmp_path, bare + "compat=strict").notices
    assert load(tmp_path, OPEN + "disable_token_authorization=true").notices


# -- keys ------------------------------------------------------------------------------------------


def test_keys_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-management-key\n")
    environ = {
        "MARSERVE_INFERENCE_KEY": "an-inference-key",
        "MARSERVE_MANAGEMENT_KEY_FILE": "secret",
    }
    config = load(tmp_path, "", environ)

    assert {
        "inference": "an-inference-key",
        "management": "a-management-key",
    } == config.fixed_keys
    assert "inference-key" not in repr(config)
    told = refusal(tmp_path, "", {"MARSERVE_API_KEY": "short"})
    assert told.startswith("MARSERVE_API_KEY: is no key")
    assert "short" not in told
    assert "cannot be read" in refusal(tmp_path, "", {"MARSERVE_API_KEY_FILE": "absent"})


# -- showing ---------------------------------------------------------------------------------------


def test_every_key_is_shown_with_its_source(tmp_path: Path) -> None:
    config = load(tmp_path, "job_queue_size=7\nkeystore_pass=hush")
    shown = describe_config(config)

    assert len(KEYS) == sum("=" in line for line in shown.splitlines())
    assert re.search(r"(?m)^job_queue_size=7 +# config\.properties:1$", shown)
    assert re.search(r"(?m)^max_request_size=6553500 +# default$", shown)
    assert "hush" not in shown


# -- anything --------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["true", "-1", "0", "1e9", "http://h:0", "unix:x", "ALL", "{}", "[]", "$$A$$", "((("]
    ),
    st.from_regex(r"\{\"m\": ?\{\"1\": ?\{\"[a-z]{1,4}Workers\": ?\"?-?[0-9]{1,5}\"?\}\}\}"),
)


@given(st.lists(st.tuples(st.sampled_from([*KEYS, "x", ""]), VALUES), max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.getbasetemp()
    path = directory / "any.properties"
    text = "\n".join(f"{key}={value}" for key, value in entries)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    flags = {"model_store": str(directory), "ts_config": str(path)}
    try:
        config = load_config(flags, {"A": "1"}, directory)
    except ConfigError:
        return
    describe_config(config)


@given(st.sampled_from(list(KEYS)), st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_environment_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: str
) -> None:
    directory = tmp_path_factory.getbasetemp()
    path = directory / "any-environment.properties"
    path.write_text("enable_envvars_config=true")
    flags = {"model_store": str(directory), "ts_config": str(path)}
    with contextlib.suppress(ConfigError):
        load_config(flags, {f"TS_{key.upper()}": value}, directory)
