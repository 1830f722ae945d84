"""Base classes and functions of handlers that spread a model with another package's help.

Each says which package it needs when it is used, not when it is imported.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

import torch

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.base import BaseHandler


class BaseDeepSpeedHandler(BaseHandler):
    """For handlers that make a DeepSpeed engine themselves, by ``get_ds_engine``."""

    def initialize(self, context: Any) -> None:
        """Takes over the context and the device of this rank.

        Raises:
            HandlerLoadError: If DeepSpeed is not installed.
        """
        require("deepspeed", type(self).__name__)
        self._begin(context)
        if torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class BasePippyHandler(BaseHandler):
    """For handlers that cut a model into stages with PiPPy, which is no longer made."""

    def initialize(self, context: Any) -> None:
        """Refuses.

        Raises:
            HandlerLoadError: Always.
        """
        no_pippy(type(self).__name__)


class BaseNeuronXHandler(BaseHandler):
    """For handlers of AWS Inferentia by transformers-neuronx."""

    def initialize(self, context: Any) -> None:
        """Refuses.

        Raises:
            HandlerLoadError: Always.
        """
        raise HandlerLoadError(
            f"{type(self).__name__} needs the package transformers-neuronx and AWS Inferentia,"
            " which marserve does not serve"
        )


class DaliHandler(BaseHandler):
    """For handlers that decode images with NVIDIA DALI."""

    def initialize(self, context: Any) -> None:
        """Refuses.

        Raises:
            HandlerLoadError: Always.
        """
        raise HandlerLoadError(
            f"{type(self).__name__} needs the package nvidia-dali, which marserve does not use;"
            " image_classifier decodes images without it"
        )


def get_ds_engine(model: Any, context: Any) -> Any:
    """Returns a DeepSpeed inference engine around a model.

    Args:
        model: The module, its weights maybe not loaded yet.
        context: ``deepspeed: {config: FILE, checkpoint: FILE}`` of its model-config.yaml says how;
            both files are in the archive.

    Raises:
        HandlerLoadError: If DeepSpeed is not installed, or no configuration is named.
    """
    deepspeed = require("deepspeed", "get_ds_engine")
    directory = Path(context.system_properties["model_dir"])
    settings = (context.model_yaml_config or {}).get("deepspeed") or {}
    if "config" not in settings:
        raise HandlerLoadError("model-config.yaml: $.deepspeed.config: names no file")
    config = json.loads((directory / settings["config"]).read_text())
    if settings.get("checkpoint"):
        config["checkpoint"] = str(directory / settings["checkpoint"])
    return deepspeed.init_inference(model, config=config)


def get_pipeline_driver(*_: Any, **__: Any) -> NoReturn:
    """Refuses: PiPPy is gone.

    Raises:
        HandlerLoadError: Always.
    """
    no_pippy("get_pipeline_driver")


def initialize_rpc_workers(*_: Any, **__: Any) -> NoReturn:
    """Refuses: PiPPy is gone.

    Raises:
        HandlerLoadError: Always.
    """
    no_pippy("initialize_rpc_workers")


def no_pippy(what: str) -> NoReturn:
    """Says that PiPPy is gone, and what there is in its place.

    Raises:
        HandlerLoadError: Always.
    """
    raise HandlerLoadError(
        f"{what} needs the package torchpippy, which is no longer made; set parallelType: tp in"
        " model-config.yaml and load the model with a tensor parallel plan"
    )


def require(package: str, what: str) -> Any:
    """Imports a package.

    Args:
        package: Its name, for import and for pip.
        what: What needs it.

    Raises:
        HandlerLoadError: If it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise HandlerLoadError(
            f"{what} needs the package {package}, which is not installed: pip install {package},"
            " or name it in the archive's requirements file"
        ) from error
