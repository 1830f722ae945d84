"""AOTInductor packages written: the graph is compiled to machine code for this kind of machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
import torch._inductor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.cpu_features import cpu_features
from marserve.handlers.export.subject import Subject, export_graph, quiet
from marserve.handlers.runners.aot_inductor import FEATURES_KEY

FILE_NAME = "model.pt2"


def write(subject: Subject, directory: Path) -> list[Path]:
    """Compiles the model; returns the package's path.

    Raises:
        HandlerLoadError: If there is no C++ compiler.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise HandlerLoadError(
            f"save_mode: aot_inductor needs a C++ compiler to make the package, and {compiler} is"
            " not installed; install g++, or name another compiler in CXX"
        )
    path = directory / FILE_NAME
    settings = {
        "cpp.dynamic_threads": True,  # as many as the worker has, not as this process has now
        "aot_inductor.metadata": {FEATURES_KEY: " ".join(cpu_features())},
    }
    graph = export_graph(subject)
    with quiet(), torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            graph, package_path=str(path), inductor_configs=settings
        )
    return [path]
