"""BaseHandler: load a model, then preprocess, infer, postprocess; any stage can be overridden."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.labels import FILE_NAME, load_label_mapping
from marserve.handlers.tensors import TensorBatch
from marserve.handlers.timing import timed


class BaseHandler:
    """A handler for models that map one tensor to one tensor, and the base of all others.

    Attributes:
        model: What ``inference`` calls.
        mapping: Class index to name, from ``index_to_name.json``, or None.
        device: Where the model is.
        map_location: ``cpu``, ``cuda`` or another device type, for ``torch.load``.
        initialized: Whether ``initialize`` has run.
        context: The context of the batch at hand.
        model_pt_path: The serialized file, or None.
        manifest: The archive's manifest, with its JSON keys.
        explain: Whether the batch at hand asks for explanations.
        target: The target used for the last explanation.
        profiler_args: Arguments of ``torch.profiler.profile`` for ``ENABLE_TORCH_PROFILER``.
        model_yaml_config: The whole of model-config.yaml.
    """

    model: Any = None
    mapping: dict[str, Any] | None = None
    device: torch.device = torch.device("cpu")
    map_location: str | None = None
    initialized: bool = False
    context: Any = None
    model_pt_path: str | None = None
    manifest: Any = None
    explain: bool = False
    target: Any = 0
    model_yaml_config: dict[str, Any]
    _tensors: TensorBatch | None = None

    def __init__(self) -> None:
        self.profiler_args: dict[str, Any] = {}
        self.model_yaml_config = {}

    def initialize(self, context: Any) -> None:
        """Loads the archive's model and its labels.

        Args:
            context: Says where the archive is and which device to use.

        Raises:
            HandlerLoadError: If the model cannot be loaded, or not in the way asked for.
        """
        from marserve.handlers import loading

        self._begin(context)
        model_dir = Path(context.system_properties["model_dir"])
        loaders = loading.Loaders(
            self._load_pickled_model,
            self._load_torchscript_model,
            self._load_onnx_model,
            self._load_torch_export_aot_compile,
        )
        self.model = loading.load_model(
            model_dir, context.manifest["model"], self.device, self.model_yaml_config, loaders
        )
        self.mapping = load_label_mapping(model_dir / FILE_NAME)
        self.initialized = True

    def _load_pickled_model(
        self, model_dir: str, model_file: str, model_pt_path: str | None
    ) -> Any:
        """Loads a model file's module and its weights; subclasses for TorchServe override this.

        Args:
            model_dir: The unpacked archive.
            model_file: Name of the Python file in it.
            model_pt_path: The weights, or None.
        """
        from marserve.handlers import loading

        weights = None if model_pt_path is None else Path(model_pt_path)
        return loading.load_eager(Path(model_dir) / model_file, weights, self.device)

    def _load_torchscript_model(self, model_pt_path: str) -> Any:
        """Loads a TorchScript file."""
        from marserve.handlers import program_files

        return program_files.load_torchscript(Path(model_pt_path), self.device)

    def _load_onnx_model(self, model_onnx_path: str) -> Any:
        """Opens an ONNX file; returns a session of ONNX Runtime."""
        from marserve.handlers import program_files

        return program_files.open_onnx(Path(model_onnx_path), self.device)

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any:
        """Loads a library or package of AOTInductor, or a program of ``torch.export``."""
        from marserve.handlers import program_files

        path = Path(model_so_path)
        if path.suffix == ".so":
            return program_files.load_aot_library(path, self.device)
        model = program_files.load_pt2(path, self.device)
        return model.module() if isinstance(model, torch.export.ExportedProgram) else model

    @timed
    def preprocess(self, data: Any) -> Any:
        """Turns the rows of a batch into what ``inference`` takes.

        Args:
            data: One row a request; those of V2 hold one tensor each, and are laid end to end.
        """
        self._tensors = TensorBatch(data) if TensorBatch.holds(data) else None
        if self._tensors is not None:
            return self._tensors.gather(self.device)
        rows = [_value(row) for row in data] if isinstance(data, list) else data
        return torch.as_tensor(rows, device=self.device)

    @timed
    @torch.inference_mode()
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on a preprocessed batch."""
        if isinstance(data, torch.Tensor):
            data = data.to(self.device)
        if not callable(self.model):  # a session of ONNX Runtime
            from marserve.handlers import program_files

            return program_files.run_onnx(self.model, data)
        return self.model(data, *args, **kwargs)

    @timed
    def postprocess(self, data: Any) -> list[Any]:
        """Turns the model's output into one result a request.

        An exception in the place of a result fails that request alone.
        """
        from marserve.handlers.outputs import to_rows

        if self._tensors is not None:
            return self._tensors.split(data)
        return to_rows(data)

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answers a batch: a description, explanations or predictions.

        Args:
            data: One row a request.
            context: The context of this batch.

        Returns:
            One result a request.
        """
        begin = time.perf_counter()
        self.context = context
        if self._is_describe():
            results: list[Any] = [self.describe_handle()]
        elif "ENABLE_TORCH_PROFILER" in os.environ:
            results = self._profiled(data)
        else:
            results = self._answer(data)
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        context.metrics.add_time("HandlerTime", round(elapsed_ms, 2), None, "ms")
        return results

    def explain_handle(self, data_preprocess: Any, raw_data: list[Any]) -> list[Any]:
        """Explains every row of a batch, by ``get_insights``.

        Args:
            data_preprocess: What ``preprocess`` returned for the whole batch.
            raw_data: The rows themselves.

        Returns:
            One explanation a request.
        """
        results: list[Any] = []
        for row in raw_data:
            prepared = data_preprocess if len(raw_data) == 1 else self.preprocess([row])
            inputs = row.get("data") if row.get("data") is not None else row.get("body")
            named = inputs.get("target") if isinstance(inputs, dict) else None
            self.target = row.get("target", named) or 0
            results.extend(self.get_insights(prepared, inputs, self.target))
        return results

    def get_insights(self, tensor_data: Any, _: Any, target: Any = 0) -> list[Any]:
        """Explains one preprocessed row; a handler with explanations overrides this.

        Raises:
            RequestError: Here, always.
        """
        raise RequestError(
            f"{type(self).__name__} offers no explanations: it does not define get_insights", 501
        )

    def describe_handle(self) -> Any:
        """Returns what the handler says of itself in the model's description; nothing here."""
        return None

    def _begin(self, context: Any) -> None:
        """Takes over what every handler reads of its context, and picks the device."""
        self.context = context
        self.manifest = context.manifest
        self.model_yaml_config = context.model_yaml_config or {}
        properties = context.system_properties
        self.device = pick_device(
            properties.get("gpu_id"), self.model_yaml_config.get("deviceType")
        )
        self.map_location = self.device.type
        serialized = self.manifest["model"].get("serializedFile")
        self.model_pt_path = serialized and os.path.join(properties["model_dir"], serialized)

    def _answer(self, data: list[Any]) -> list[Any]:
        prepared = self.preprocess(data)
        if self._is_explain():
            return self.explain_handle(prepared, data)
        return self.postprocess(self.inference(prepared))

    def _profiled(self, data: list[Any]) -> list[Any]:
        """Answers under the profiler of PyTorch and leaves a trace for its viewers."""
        folder = f"/tmp/pytorch_profiler/{self.context.model_name}"  # noqa: S108 - where users look
        arguments = dict(self.profiler_args)
        if "on_trace_ready" not in arguments:
            handler = torch.profiler.tensorboard_trace_handler(folder)
            arguments["on_trace_ready"] = handler
        with torch.profiler.profile(**arguments):
            return self._answer(data)

    def _is_explain(self) -> bool:
        """Tells whether the batch at hand asks for explanations."""
        self.explain = self.context.get_request_header(0, "explain") == "True"
        return self.explain

    def _is_describe(self) -> bool:
        """Tells whether the batch at hand asks for a description."""
        return bool(self.context.get_request_header(0, "describe") == "True")


def _value(row: Any) -> Any:
    """What a row holds: of one with ``data`` or ``body`` that, else the row itself."""
    if not isinstance(row, dict):
        return row
    return row["data"] if row.get("data") is not None else row.get("body", row)


def pick_device(gpu_id: int | str | None, device_type: str | None = None) -> torch.device:
    """Returns the accelerator that the worker was given, else the CPU.

    Args:
        gpu_id: Index of the device, or None.
        device_type: ``deviceType`` of model-config.yaml, or None.

    Raises:
        HandlerLoadError: If a GPU was asked for that PyTorch cannot use.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if gpu_id is not None and accelerator is not None:
        return torch.device(accelerator.type, int(gpu_id))
    if gpu_id is not None and device_type == "gpu":
        raise HandlerLoadError(
            f"deviceType: gpu: PyTorch {torch.__version__} sees no accelerator for device {gpu_id};"
            " install its build for your GPU, or set deviceType: cpu"
        )
    return torch.device("cpu")
