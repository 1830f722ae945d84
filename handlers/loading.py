"""Loading the model of a handler that is not our transformer handler: by file kind, as archived."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.model_config import Compilation, parse_model_config


@dataclass(frozen=True)
class Loaders:
    """What loads a file of each kind; a handler may bring its own.

    Attributes:
        eager: Takes the directory, the name of the model file, and the weights' path or None.
        torchscript: Takes the path of a TorchScript file.
        onnx: Takes the path of an ONNX file.
        aot: Takes the path of a library or package of AOTInductor.
    """

    eager: Callable[[str, str, str | None], Any]
    torchscript: Callable[[str], Any]
    onnx: Callable[[str], Any]
    aot: Callable[[str], Any]


def load_model(
    directory: Path,
    model: Mapping[str, Any],
    device: torch.device,
    config: dict[str, Any],
    loaders: Loaders,
) -> Any:
    """Loads an archive's model onto a device.

    A model file is Python code with one module class, made without arguments, into which the
    serialized file is loaded if there is one. Without it the serialized file is the model: ``.pt``
    TorchScript, ``.onnx`` for ONNX Runtime, ``.so`` or ``.pt2`` compiled by AOTInductor, ``.pt2``
    also a program of ``torch.export``.

    Args:
        directory: The unpacked archive.
        model: The section ``model`` of its manifest.
        device: Where the model is to run.
        config: The whole of model-config.yaml; its ``pt2`` says how to compile.
        loaders: What loads each kind.

    Raises:
        HandlerLoadError: If the model cannot be loaded, or not compiled as asked for.
    """
    compilation = parse_model_config(config, strict_handler=False).pt2 or Compilation()
    serialized = model.get("serializedFile")
    weights = directory / serialized if serialized else None
    if weights is not None and not weights.is_file():
        raise HandlerLoadError(f"the archive has no {serialized}, its serialized file")
    if model.get("modelFile"):
        path = None if weights is None else str(weights)
        module = _ready(loaders.eager(str(directory), model["modelFile"], path), device)
        return compile_module(module, compilation.options) if compilation.compile else module
    if compilation.compile:
        raise HandlerLoadError(
            "model-config.yaml: $.pt2: torch.compile needs an eager model; pack one with"
            " --model-file, or set pt2.compile.enable: false"
        )
    return _load_serialized(weights, device, loaders, aot=compilation.aot_compile)


def load_eager(model_file: Path, weights: Path | None, device: torch.device) -> nn.Module:
    """Makes the module of a model file and loads its weights.

    Args:
        model_file: Python code with one class of module.
        weights: State dict, safetensors or PyTorch's; None to keep what the class makes.
        device: Where the module is to run.

    Raises:
        HandlerLoadError: If the file has not one such class, or the weights do not fit.
    """
    module = _module_class(model_file)()
    if weights is not None:
        try:
            module.load_state_dict(load_state_dict(weights, device))
        except RuntimeError as error:
            raise HandlerLoadError(
                f"{weights.name}: does not fit {type(module).__name__} of {model_file.name}:"
                f" {error}"
            ) from error
    return module.to(device).eval()


def load_state_dict(path: Path, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """Reads the tensors of a safetensors or a PyTorch file, without running code from it.

    Raises:
        HandlerLoadError: If it is damaged or holds anything but tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path, device=str(device))
        state = torch.load(path, map_location=device, weights_only=True)
    except (OSError, safetensors.SafetensorError) as error:
        raise HandlerLoadError(f"{path.name}: cannot be read: {error}") from error
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError) as error:
        raise HandlerLoadError(
            f"{path.name}: is no state dict of tensors, and nothing else is loaded from a pickle,"
            f" because it may run code: {str(error)[:300]}; save model.state_dict(), best as"
            " safetensors"
        ) from error
    if not isinstance(state, dict):
        raise HandlerLoadError(
            f"{path.name}: holds a {type(state).__name__}, expected a state dict of tensors"
        )
    return state


def compile_module(module: nn.Module, options: Mapping[str, Any]) -> Any:
    """Returns a module that compiles itself at its first call.

    Args:
        module: In evaluation mode.
        options: Arguments of ``torch.compile``.

    Raises:
        HandlerLoadError: If an argument or the backend is not known.
    """
    backend = options.get("backend", "inductor")
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        raise HandlerLoadError(
            f"model-config.yaml: $.pt2.compile.backend: {backend!r} is not known to PyTorch"
            f" {torch.__version__}; there are: {', '.join(known)}"
        )
    try:
        return torch.compile(module, **options)
    except (TypeError, RuntimeError, ImportError) as error:
        raise HandlerLoadError(f"model-config.yaml: $.pt2.compile: {error}") from error


def _module_class(model_file: Path) -> type[nn.Module]:
    if not model_file.is_file():
        raise HandlerLoadError(f"the archive has no {model_file.name}, its model file")
    spec = importlib.util.spec_from_file_location(model_file.stem, model_file)
    if spec is None or spec.loader is None:
        raise HandlerLoadError(f"{model_file.name}: is no Python file")
    code = importlib.util.module_from_spec(spec)
    sys.modules[model_file.stem] = code
    spec.loader.exec_module(code)
    own = [c for c in vars(code).values() if inspect.isclass(c) and c.__module__ == code.__name__]
    found = [c for c in own if issubclass(c, nn.Module)]
    found = [c for c in found if not any(c is not d and issubclass(d, c) for d in found)]
    if len(found) != 1:
        names = ", ".join(c.__name__ for c in found) or "none"
        raise HandlerLoadError(
            f"{model_file.name}: expected exactly one class of torch.nn.Module, found {names}; move"
            " its parts into another file and pack that with --extra-files"
        )
    return found[0]


def _ready(model: Any, device: torch.device) -> Any:
    """A handler's own loader need not know of the device, nor of modes."""
    return model.to(device).eval() if isinstance(model, nn.Module) else model


def _load_serialized(
    weights: Path | None, device: torch.device, loaders: Loaders, aot: bool
) -> Any:
    if weights is None:
        raise HandlerLoadError(
            "No model weights could be loaded: the archive has no serialized and no model file"
        )
    if weights.suffix == ".pt":
        return _ready(loaders.torchscript(str(weights)), device)
    if weights.suffix == ".onnx":
        return loaders.onnx(str(weights))
    if weights.suffix == ".pt2" or (weights.suffix == ".so" and aot):
        return loaders.aot(str(weights))
    remedy = {
        ".so": "set pt2.export.aot_compile: true for a library that AOTInductor made",
        ".safetensors": "they are weights alone: add the model's code with --model-file",
        ".pth": "a state dict needs the model's code: add it with --model-file",
        ".bin": "a state dict needs the model's code: add it with --model-file",
    }.get(weights.suffix, "expected .pt, .onnx, .pt2, or a --model-file for a state dict")
    raise HandlerLoadError(f"No model weights could be loaded: {weights.name}: {remedy}")
