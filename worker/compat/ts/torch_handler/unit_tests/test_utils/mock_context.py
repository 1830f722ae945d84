"""``ts.torch_handler.unit_tests.test_utils.mock_context``, as tests of handlers import it."""

from __future__ import annotations

from pathlib import Path

import yaml

from marserve.handlers.context import Context, RequestProcessor
from marserve.handlers.metrics import HandlerMetrics


class MockContext(Context):
    """A context without a server.

    Args:
        model_pt_file: The serialized file, or None.
        model_dir: Where the model's files are.
        model_file: Python code of the model, or None.
        gpu_id: Index of the device, None for the CPU.
        model_name: Name of the model.
        model_yaml_config_file: In ``model_dir``, or None.
    """

    def __init__(
        self,
        model_pt_file: str | None = "model.pt",
        model_dir: str | Path = ".",
        model_file: str | None = None,
        gpu_id: str | int | None = "0",
        model_name: str = "mnist",
        model_yaml_config_file: str | None = None,
    ) -> None:
        named = {"modelName": model_name, "serializedFile": model_pt_file, "modelFile": model_file}
        model = {key: value for key, value in named.items() if value}
        path = Path(model_dir, model_yaml_config_file) if model_yaml_config_file else None
        super().__init__(
            model_name,
            str(model_dir),
            {"model": model},
            gpu_id=None if gpu_id is None else int(gpu_id),
            metrics=HandlerMetrics(model_name),
            model_yaml_config=yaml.safe_load(path.read_text()) if path else None,
        )
        self.explain = False
        self.begin(["0"], [{}])

    def get_request_header(self, idx: int, key: str) -> str | None:
        """Returns a header; ``explain`` as the attribute of that name says."""
        if key == "explain":
            return str(self.explain)
        return super().get_request_header(idx, key)


__all__ = ["MockContext", "RequestProcessor"]
