"""Files that hold a whole program, weights included: opened for any handler."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.pt2 import pt2_problem


def load_torchscript(path: Path, device: torch.device) -> Any:
    """Loads a TorchScript model in evaluation mode.

    Raises:
        HandlerLoadError: If the file is something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*jit.*", category=DeprecationWarning)
            return torch.jit.load(str(path), map_location=device).eval()
    except (RuntimeError, ValueError) as error:
        raise HandlerLoadError(
            f"{path.name}: is no TorchScript model ({str(error)[:300]}); for a state dict add the"
            " model's code with --model-file"
        ) from error


def open_onnx(path: Path, device: torch.device, threads: int = 0) -> Any:
    """Opens a session of ONNX Runtime.

    Args:
        path: The file.
        device: Where it computes.
        threads: Compute threads; 0 for those of PyTorch.

    Raises:
        HandlerLoadError: If ONNX Runtime is not installed, was not built for the device, or cannot
            read the file.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise HandlerLoadError(
            f"{path.name}: needs ONNX Runtime, which is not installed: pip install marserve[onnx]"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # its warnings are about what it may make faster
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise HandlerLoadError(
                f"{path.name}: the installed ONNX Runtime is for CPUs only; pip install"
                " onnxruntime-gpu, or set deviceType: cpu"
            )
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # the engine raises its own kinds, without a common root
        raise HandlerLoadError(f"{path.name}: is no ONNX model: {str(error)[:300]}") from error


def run_onnx(session: Any, data: Any) -> Any:
    """Runs a session on one tensor; returns its first output."""
    array = torch.as_tensor(data).cpu().contiguous().numpy()
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: array})[0])


def load_pt2(path: Path, device: torch.device) -> Any:
    """Loads a package that AOTInductor compiled, or a program of ``torch.export``.

    Raises:
        HandlerLoadError: If the file is something else, or made for another machine.
    """
    if pt2_problem(path, "aot_inductor") is None:
        return load_aot_package(path, device)
    return load_exported(path, device)


def load_aot_package(path: Path, device: torch.device) -> Any:
    """Loads a package (``.pt2``) that AOTInductor compiled.

    Raises:
        HandlerLoadError: If the file is something else, or made for another machine.
    """
    import torch._inductor

    if problem := pt2_problem(path, "aot_inductor"):
        raise HandlerLoadError(f"{path.name}: {problem}")
    try:
        index = device.index if device.index is not None else -1
        package = torch._inductor.aoti_load_package(str(path), device_index=index)
    except (RuntimeError, OSError, ImportError) as error:
        raise HandlerLoadError(f"{path.name}: cannot be loaded by AOTInductor: {error}") from error
    made_for = package.get_metadata().get("AOTI_DEVICE_KEY", device.type)
    if made_for != device.type:
        raise HandlerLoadError(
            f"{path.name}: was compiled for {made_for}, but the worker computes on {device.type};"
            f" expected a package compiled for {device.type}, or deviceType:"
            f" {'gpu' if made_for == 'cuda' else made_for}"
        )
    return package


def load_exported(path: Path, device: torch.device) -> Any:
    """Loads a program of ``torch.export`` and moves it to a device.

    Returns:
        An ``ExportedProgram``; its ``module()`` can be called.

    Raises:
        HandlerLoadError: If the file is something else.
    """
    from torch.export.passes import move_to_device_pass

    if problem := pt2_problem(path, "exported"):
        raise HandlerLoadError(f"{path.name}: {problem}")
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # whatever a damaged file leads to
        raise HandlerLoadError(
            f"{path.name}: cannot be read by torch.export: {str(error)[:300]}; export it anew with"
            f" this version of PyTorch, {torch.__version__}"
        ) from error
    return move_to_device_pass(program, device)


def load_aot_library(path: Path, device: torch.device) -> Any:
    """Loads a library (``.so``) that AOTInductor compiled.

    Raises:
        HandlerLoadError: If the file is something else, or made for another machine.
    """
    import torch._export

    try:
        return torch._export.aot_load(str(path), str(device))
    except (RuntimeError, OSError, ImportError) as error:
        raise HandlerLoadError(f"{path.name}: cannot be loaded by AOTInductor: {error}") from error
