"""What settings must not contradict: checked before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.errors import ConfigError

if TYPE_CHECKING:
    from marserve.frontend.address import Address
    from marserve.frontend.config_keys import ServerConfig

_ADDRESSES = ("inference_address", "management_address", "metrics_address")
_OPENSSL = (
    "openssl pkcs12 -in {0} -nokeys -out cert.pem; openssl pkcs12 -in {0} -nocerts -nodes -out"
    " key.pem"
)
_KEYTOOL = "keytool -importkeystore -srckeystore {} -destkeystore {} -deststoretype PKCS12; "


def check(config: ServerConfig) -> ServerConfig:
    """Returns the settings, with notices added.

    Raises:
        ConfigError: If the settings cannot work together.
    """
    notices = [*config.notices, *_check_management(config)]
    _check_directories(config)
    _check_tls(config)
    _check_same_port(config)
    metrics_config, notice = _metrics_config(config)
    return replace(config, metrics_config=metrics_config, notices=tuple(notices + notice))


def _place(config: ServerConfig, name: str) -> str:
    return f"{config.sources[name]}: {name}"


def _addresses(config: ServerConfig) -> dict[str, Address]:
    used = {name: getattr(config, name) for name in _ADDRESSES}
    if not config.enable_metrics_api:
        del used["metrics_address"]
    return used


def _check_directories(config: ServerConfig) -> None:
    for name in ("model_store", "workflow_store"):
        path: Path | None = getattr(config, name)
        if path is not None and not _is_dir(path):
            reason = f"directory not found: {config.texts[name]}"
            raise ConfigError(_place(config, name), reason)


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that cannot be one is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, a directory that may not be entered
        return False


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _check_tls(config: ServerConfig) -> None:
    https = [name for name, address in _addresses(config).items() if address.scheme == "https"]
    if config.enable_grpc and config.enable_grpc_ssl:
        https.append("enable_grpc_ssl")
    if not https:
        return
    if config.keystore is not None:
        hint = f"give certificate_file and private_key_file; {_conversion(config)}"
        raise ConfigError(_place(config, "keystore"), "a Java keystore is not read", hint)
    for name in ("certificate_file", "private_key_file"):
        path: Path | None = getattr(config, name)
        if path is None:
            reason = f"TLS needs {name}, which is not set"
            hint = "a self-signed one: openssl req -x509 -newkey rsa:2048 -nodes -days 365"
            raise ConfigError(_place(config, https[0]), reason, hint)
        if not is_file(path):
            raise ConfigError(_place(config, name), f"no such file: {path}")


def _conversion(config: ServerConfig) -> str:
    """The commands that make PEM files of the keystore; openssl reads PKCS12 alone."""
    keystore = config.texts["keystore"]
    if config.keystore_type.upper() == "PKCS12":
        return _OPENSSL.format(keystore)
    converted = f"{Path(keystore).stem}.p12"
    return _KEYTOOL.format(keystore, converted) + _OPENSSL.format(converted)


def _check_same_port(config: ServerConfig) -> None:
    """Surfaces may share an address, but not a port with two schemes; gRPC shares none."""
    seen: dict[tuple[str, int], tuple[str, Address]] = {}
    for name, address in _addresses(config).items():
        if address.scheme == "unix" or address.port == 0:
            continue
        other, before = seen.setdefault((address.host, address.port), (name, address))
        if before.scheme != address.scheme:
            reason = f"{address} and {other} {before} are one port with two schemes"
            raise ConfigError(_place(config, name), reason, "give them different ports")
    if config.enable_grpc and config.grpc_inference_port == config.grpc_management_port:
        reason = f"both gRPC services are to listen on port {config.grpc_inference_port}"
        raise ConfigError(_place(config, "grpc_management_port"), reason, "give another port")


def _check_management(config: ServerConfig) -> list[str]:
    """Anyone who may register a model runs code here: that needs a key, or an explicit word."""
    open_to_all = {"management_address": config.management_address}
    if config.enable_grpc:
        open_to_all["grpc_management_address"] = config.grpc_address("management")
    return [
        notice
        for name, address in open_to_all.items()
        if not (address.is_loopback or not config.disable_token_authorization)
        for notice in _check_open(config, _place(config, name), address)
    ]


def _check_open(config: ServerConfig, where: str, address: Address) -> list[str]:
    if not config.enable_model_api:
        return [f"{where}: {address} is open to the network without keys: anyone may scale models"]
    reason = f"{address} without keys and with enable_model_api lets anyone on the network run code"
    if config.allow_insecure_management or config.compat == "strict":
        return [f"{where}: {reason}"]
    hint = "listen on 127.0.0.1, keep the keys, or set allow_insecure_management=true"
    raise ConfigError(where, reason, hint)


def _metrics_config(config: ServerConfig) -> tuple[Path | None, list[str]]:
    path = config.metrics_config
    if path is None or is_file(path):
        return path, []
    if path.as_posix().endswith("ts/configs/metrics.yaml"):
        # TorchServe's own copy of the default, named in many files; ours is built in.
        where = _place(config, "metrics_config")
        return None, [f"{where}: {path} is not there; the built-in metrics are used"]
    raise ConfigError(_place(config, "metrics_config"), f"no such file: {path}")
