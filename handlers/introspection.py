"""Finding classes by name or in a module, and names of compiler backends."""

from __future__ import annotations

import importlib
import inspect
import logging
from types import ModuleType

logger = logging.getLogger(__name__)

# What `pt2` of model-config.yaml has always been allowed to name.
BACKENDS = (
    "eager",
    "aot_eager",
    "inductor",
    "nvfuser",
    "aot_nvfuser",
    "aot_cudagraphs",
    "ofi",
    "fx2trt",
    "onnxrt",
    "ipex",
    "torchxla_trace_once",
    "openvino",
    "tensorrt",
    "hpu_backend",
)


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """Returns the classes that a module defines itself, by name.

    Args:
        module: Already imported.
        parent_class: If given, its subclasses alone.
    """
    own = [
        each
        for _, each in inspect.getmembers(module, inspect.isclass)
        if each.__module__ == module.__name__
    ]
    return [each for each in own if parent_class is None or issubclass(each, parent_class)]


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Imports a class by its dotted name.

    Args:
        class_name: ``module.Class``; relative to the prefix if there is one.
        module_prefix: Package or module that the name is found in.

    Raises:
        ImportError: If there is no such module, or no such class in it.
    """
    full = f"{module_prefix}.{class_name}" if module_prefix else class_name
    module, _, name = full.rpartition(".")
    if not module:
        raise ImportError(f"{class_name!r} names no module; expected module.Class")
    found = getattr(importlib.import_module(module), name, None)
    if not inspect.isclass(found):
        raise ImportError(f"module {module} has no class {name}")
    return found


def check_valid_pt2_backend(backend: str) -> bool:
    """Tells whether a name is one of a backend of ``torch.compile``."""
    if backend not in BACKENDS:
        logger.warning("%s is no backend of torch.compile; known: %s", backend, ", ".join(BACKENDS))
    return backend in BACKENDS
