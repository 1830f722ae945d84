"""The one table of the server's settings: a field a key of ``config.properties``.

The sample ``config.properties`` at the top of the project is printed from this table.
"""

# ruff: noqa: RUF009 - _key() describes a field, as dataclasses.field() does

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from marserve.frontend.address import Address
from marserve.frontend.config_kinds import (
    BOOLEAN,
    LOAD_ITEMS,
    PATH,
    PATTERN,
    PATTERNS,
    PORT,
    POSITIVE,
    TEXT,
    Kind,
    LoadItem,
    address,
    choice,
    integer,
)
from marserve.frontend.model_defaults import MODELS, SNAPSHOT, ModelTable

_JVM: Final = "there is no Java virtual machine here"
_NETTY: Final = "one event loop serves all connections, netty is not used"
_COPIED: Final = "many files carry this key, but TorchServe never read it either"
COUNT = integer(0)
SIZE = integer(1)


@dataclass(frozen=True, slots=True)
class Key:
    """What is known about a key.

    Args:
        kind: What values it can have.
        default: Text of the default; empty for none.
        doc: One line for the sample.
        notice: Why the key has no effect here; empty for a key that has one.
        env: The environment variable that can set it; None for a key that none can set,
            empty for ``TS_`` and the key in capitals.
        secret: Whether the value must not be shown.
    """

    kind: Kind
    default: str
    doc: str
    notice: str = ""
    env: str | None = ""
    secret: bool = False


def _key(kind: Kind, default: str, doc: str, absent: Any = None, **more: Any) -> Any:
    value = kind.read(default) if default else absent
    return field(default=value, metadata={"key": Key(kind, default, doc, **more)})


def _models(kind: Kind, doc: str) -> Any:
    return field(default_factory=dict, metadata={"key": Key(kind, "", doc, env=None)})


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The effective settings; every attribute up to ``NUM_WORKERS`` is the key of the same name.

    The remaining ones say where the settings came from and what else the surroundings decide.
    """

    # Where to listen
    inference_address: Address = _key(
        address(80, 443), "http://127.0.0.1:8080", "Predictions and explanations."
    )
    management_address: Address = _key(
        address(8081, 8444), "http://127.0.0.1:8081", "Registering, scaling and describing models."
    )
    metrics_address: Address = _key(address(8082, 8445), "http://127.0.0.1:8082", "Metrics.")

    # gRPC
    enable_grpc: bool = _key(BOOLEAN, "true", "Serve gRPC at all.")
    grpc_inference_address: str = _key(TEXT, "127.0.0.1", "Host or IP of gRPC predictions.")
    grpc_management_address: str = _key(TEXT, "127.0.0.1", "Host or IP of gRPC management.")
    grpc_inference_port: int = _key(PORT, "7070", "Port of gRPC predictions.")
    grpc_management_port: int = _key(PORT, "7071", "Port of gRPC management.")
    grpc_inference_max_connection_age_ms: int | None = _key(
        SIZE, "", "Milliseconds until a connection is asked to be made anew; never."
    )
    grpc_inference_max_connection_age_grace_ms: int | None = _key(
        SIZE, "", "Milliseconds for the last calls of such a connection; endless."
    )
    grpc_management_max_connection_age_ms: int | None = _key(SIZE, "", "The same for management.")
    grpc_management_max_connection_age_grace_ms: int | None = _key(
        SIZE, "", "The same for management."
    )
    enable_grpc_ssl: bool = _key(
        BOOLEAN, "false", "TLS for gRPC, with certificate_file and private_key_file."
    )

    # Which models
    model_store: Path = _key(PATH, "", "Directory of the archives; required.")
    load_models: tuple[LoadItem, ...] | None = _key(
        LOAD_ITEMS, "", "Models to load at start: ALL, or a.mar,name=b.mar,/a/directory."
    )
    models: ModelTable = _models(
        MODELS, 'Defaults of versions: {"name": {"1.0": {"minWorkers": 1, "batchSize": 4}}}.'
    )
    model_snapshot: ModelTable = _models(
        SNAPSHOT, "Models to load at start, as a snapshot names them; load_models is ignored then."
    )
    model_control_mode: str = _key(
        choice("explicit", "none", "poll"),
        "explicit",
        "As in Triton: load_models and calls; all models at start; all, and what changes later.",
    )
    repository_poll_secs: int = _key(SIZE, "15", "Seconds between looks at the model store.")
    response_cache_size: int = _key(COUNT, "67108864", "Most bytes of kept answers, all models'.")
    config_snapshots: str = _key(
        choice("auto", "always", "off"),
        "auto",
        "Snapshots of the models; restored where no file is named, or always, or never written.",
        env=None,
    )
    allow_client_shm: bool = _key(
        BOOLEAN, "false", "Let V2 clients pass tensors in shared memory that they register."
    )
    default_service_handler: str | None = _key(
        TEXT, "", "Handler of archives whose manifest names none."
    )
    service_envelope: str | None = _key(TEXT, "", "Envelope of requests: body, json, kserve, ...")
    install_py_dep_per_model: bool = _key(
        BOOLEAN, "false", "Install an archive's requirements file when the model is registered."
    )
    allowed_urls: tuple[re.Pattern[str], ...] = _key(
        PATTERNS,
        "",
        "Regular expressions of URLs that archives may come from; none if empty.",
        absent=(),
    )
    use_env_allowed_urls: bool = _key(BOOLEAN, "false", "Let TS_ALLOWED_URLS set allowed_urls.")
    workflow_store: Path | None = _key(
        PATH, "", "Directory of workflow archives; the model store if not given."
    )

    # Workers and queues
    default_workers_per_model: int = _key(
        COUNT, "0", "Workers of a model; 0 at start means one a GPU, or one where there is none."
    )
    default_response_timeout: int = _key(SIZE, "120", "Seconds for a batch.")
    default_startup_timeout: int = _key(SIZE, "120", "Seconds for loading a model in a worker.")
    unregister_model_timeout: int = _key(SIZE, "120", "Seconds for ending the workers of a model.")
    job_queue_size: int = _key(SIZE, "100", "Most requests that wait for a model.")
    number_of_gpu: int | None = _key(COUNT, "", "Most GPUs to use; all that are found.")
    python: str | None = _key(TEXT, "", "Interpreter of the workers; the server's own.")
    initial_worker_port: int = _key(PORT, "9000", "The id of the first worker.")
    initial_distribution_port: int = _key(
        PORT, "29500", "First rendezvous port of worker groups.", notice="ports are chosen freely"
    )
    blacklist_env_vars: re.Pattern[str] | None = _key(
        PATTERN, "", "Regular expression of environment variables that workers do not get."
    )
    limit_max_image_pixels: bool = _key(
        BOOLEAN, "true", "Whether handlers refuse images of huge dimensions."
    )
    decode_input_request: bool = _key(
        BOOLEAN, "true", "Whether handlers get JSON and text decoded, or all as bytes."
    )

    # Limits
    max_request_size: int = _key(SIZE, "6553500", "Most bytes of a request body.")
    max_connections: int = _key(
        SIZE, "10000", "Most open connections of an HTTP address; one more gets 503 and is closed."
    )
    receive_timeout: float = _key(
        POSITIVE, "300", "Seconds for a request's body to arrive, however steadily it comes."
    )
    max_response_size: int = _key(SIZE, "6553500", "Most bytes of a response body.")

    # Security
    disable_token_authorization: bool = _key(BOOLEAN, "false", "Serve without keys.")
    token_expiration_min: float = _key(
        POSITIVE, "60", "Minutes until a key expires.", env="TS_TOKEN_EXPIRATION_TIME_MIN"
    )
    enable_model_api: bool = _key(
        BOOLEAN, "false", "Allow registering and unregistering while running."
    )
    allow_model_uploads: bool = _key(
        BOOLEAN,
        "false",
        "Take models whose files come with V2's load call.",
    )
    allow_insecure_management: bool = _key(
        BOOLEAN,
        "false",
        "Start even where anyone on the network could register code: see enable_model_api.",
    )
    certificate_file: Path | None = _key(PATH, "", "PEM certificate chain for https addresses.")
    private_key_file: Path | None = _key(PATH, "", "PEM private key of the certificate.")
    keystore: Path | None = _key(PATH, "", "Java keystore; refused: use the two PEM files.")
    keystore_pass: str = _key(
        TEXT, "changeit", "Password of the keystore.", notice="a keystore is not read", secret=True
    )
    keystore_type: str = _key(
        TEXT, "PKCS12", "Type of the keystore.", notice="a keystore is not read"
    )
    cors_allowed_origin: str | None = _key(TEXT, "", "Access-Control-Allow-Origin of answers.")
    cors_allowed_methods: str | None = _key(TEXT, "", "Access-Control-Allow-Methods of answers.")
    cors_allowed_headers: str | None = _key(TEXT, "", "Access-Control-Allow-Headers of answers.")

    # Metrics and logs
    enable_metrics_api: bool = _key(BOOLEAN, "true", "Serve metrics at all.")
    metrics_mode: str = _key(
        choice("log", "prometheus", "legacy"), "prometheus", "Where metrics go."
    )
    metrics_config: Path | None = _key(PATH, "", "YAML of the metrics; a built-in one.")
    metric_time_interval: int = _key(SIZE, "60", "Seconds between system metrics.", env=None)
    model_metrics_auto_detect: bool = _key(
        BOOLEAN, "true", "Take metrics of handlers that metrics_config does not name."
    )
    disable_system_metrics: bool = _key(BOOLEAN, "false", "Leave CPU, memory and disk out.")
    log_format: str = _key(
        choice("text", "json"), "text", "Lines of the logs: as TorchServe's, or JSON objects."
    )
    access_log: bool = _key(BOOLEAN, "true", "Write access_log.log.")

    # The server itself
    compat: str = _key(
        choice("default", "strict"), "default", "strict: TorchServe's statuses, quirks included."
    )
    drain_timeout: float = _key(
        POSITIVE, "30", "Seconds for accepted requests to finish when the server stops."
    )
    debug_errors: bool = _key(
        BOOLEAN, "false", "Tell clients the handler's traceback when it fails: paths and code."
    )
    enable_envvars_config: bool = _key(
        BOOLEAN, "false", "Let environment variables override all of this.", env=None
    )

    # Accepted, without effect
    ts_open_inference_protocol: bool = _key(
        Kind("true, false or oip", lambda text: text.lower() == "oip" or BOOLEAN.parse(text)),
        "false",
        "Open Inference Protocol.",
        env="TS_OPEN_INFERENCE_PROTOCOL",
        notice="the open inference protocol is not served yet",
    )
    ts_header_key_sequence_id: str = _key(
        TEXT,
        "ts_request_sequence_id",
        "Header: id of a sequence.",
        env="TS_HEADER_KEY_SEQUENCE_ID",
    )
    ts_header_key_sequence_start: str = _key(
        TEXT,
        "ts_request_sequence_start",
        "Header: a sequence begins.",
        env="TS_HEADER_KEY_SEQUENCE_START",
    )
    ts_header_key_sequence_end: str = _key(
        TEXT,
        "ts_request_sequence_end",
        "Header: a sequence ends.",
        env="TS_HEADER_KEY_SEQUENCE_END",
    )
    number_of_netty_threads: int = _key(COUNT, "0", "Frontend threads.", notice=_NETTY)
    netty_client_threads: int = _key(COUNT, "0", "Backend threads.", notice=_NETTY)
    prefer_direct_buffer: bool = _key(BOOLEAN, "false", "Buffers.", notice=_NETTY)
    use_native_io: bool = _key(BOOLEAN, "true", "Native transport.", notice=_NETTY, env=None)
    io_ratio: int = _key(integer(1, 100), "50", "Share of I/O.", notice=_NETTY, env=None)
    async_logging: bool = _key(
        BOOLEAN, "false", "Log from a thread.", notice="logs are always written by a thread"
    )
    vmargs: str | None = _key(TEXT, "", "Arguments of Java.", notice=_JVM)
    plugins_path: Path | None = _key(PATH, "", "Directory of Java plugins.", notice=_JVM)
    model_server_home: Path | None = _key(
        PATH, "", "Where TorchServe is.", notice="nothing is read from TorchServe's folder"
    )
    tsConfigFile: Path | None = _key(
        PATH, "", "The file itself.", notice="a file cannot name another one in its place"
    )
    version: str | None = _key(TEXT, "", "TorchServe's.", notice="written by snapshots", env=None)
    system_metrics_cmd: str | None = _key(
        TEXT,
        "",
        "Program that collects system metrics.",
        notice="the server collects system metrics itself",
        env=None,
    )
    cpp_log_config: Path | None = _key(
        PATH, "", "Log settings of C++ workers.", notice="there are no C++ workers"
    )
    ipex_enable: bool = _key(
        BOOLEAN, "false", "IPEX.", notice="Intel ended IPEX; PyTorch has its optimisations"
    )
    ipex_gpu_enable: bool = _key(
        BOOLEAN, "false", "IPEX.", notice="Intel ended IPEX; PyTorch has its optimisations"
    )
    cpu_launcher_enable: bool = _key(
        BOOLEAN, "false", "Pin workers to cores.", notice="workers are not pinned"
    )
    cpu_launcher_args: str | None = _key(
        TEXT, "", "How to pin them.", notice="workers are not pinned"
    )
    debug: bool = _key(
        BOOLEAN, "false", "Attach a debugger.", notice="workers are always started by the server"
    )
    metrics_format: str | None = _key(TEXT, "", "Use metrics_mode.", notice=_COPIED, env=None)
    NUM_WORKERS: int | None = _key(
        COUNT, "", "Use default_workers_per_model.", notice=_COPIED, env=None
    )

    sources: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    notices: tuple[str, ...] = ()
    config_file: Path | None = None
    restored_models: bool = False
    log_location: Path = Path("logs")
    metrics_location: Path = Path("logs")
    fixed_keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    def grpc_address(self, surface: str) -> Address:
        """Returns where a gRPC surface listens, ``inference`` or ``management``."""
        host: str = getattr(self, f"grpc_{surface}_address")
        port: int = getattr(self, f"grpc_{surface}_port")
        return Address("grpcs" if self.enable_grpc_ssl else "grpc", host.strip("[]"), port)


KEYS: Final[Mapping[str, Key]] = {
    item.name: item.metadata["key"] for item in fields(ServerConfig) if "key" in item.metadata
}


def environment_variable(name: str) -> str | None:
    """Returns the variable that can set a key, or None where none can."""
    env = KEYS[name].env
    return f"TS_{name.upper()}" if env == "" else env
