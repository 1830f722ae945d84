"""Which mode of execution a configuration means, and which modes there cannot be.

A model's *source* is the kind of file that it is run from. Only ``pretrained``, which is weights in
a transformers model, can still be changed when it is loaded; the others were made by
``archive-model export`` or elsewhere and run as they are. This is asked when packing and again in
the worker, so that both refuse the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import NoReturn

from marserve.archiver.errors import ConfigError
from marserve.archiver.handler_options import SaveMode
from marserve.archiver.model_config import ModelConfig
from marserve.archiver.parallel import arrange

SUFFIXES: dict[SaveMode, tuple[str, ...]] = {
    "torchscript": (".pt", ".pth", ".ts"),
    "onnx": (".onnx",),
    "openvino": (".xml",),
    "aot_inductor": (".pt2",),
    "exported": (".pt2",),
}
"""The names of the files of each source but ``pretrained``, whose files keep their usual names."""

QUANTIZATIONS: dict[SaveMode, tuple[str, ...]] = {
    "pretrained": ("int8_dynamic", "int8_weight_only", "float8_dynamic"),
    "onnx": ("int8_dynamic", "int8_weight_only"),
    "openvino": ("int8_weight_only",),
}
"""The values of ``handler.quantization`` that each source can have; the others have none."""

DTYPES: dict[SaveMode, tuple[str | None, ...]] = {
    "openvino": (None, "auto", "float32", "bfloat16"),
}
"""The values of ``handler.dtype`` of programs whose engine is told at load what to compute in."""

# .pth is not here: TorchServe's users have state dicts under that name.
_SOURCE_BY_SUFFIX: dict[str, SaveMode] = {
    ".pt": "torchscript",
    ".onnx": "onnx",
    ".xml": "openvino",
    ".pt2": "aot_inductor",
}
_ENCODING_DECODING_TASKS = ("summarization", "translation")
_WITHOUT_UNPADDED = (
    "text_generation",
    *_ENCODING_DECODING_TASKS,
    "image_classification",
    "automatic_speech_recognition",
)


@dataclass(frozen=True, slots=True)
class Execution:
    """A mode of execution that can run.

    Args:
        source: What the model is run from.
        compiled: Whether it goes through ``torch.compile``.
        unpadded: Whether padding is kept out of the computation.
        quantization: One of the source's ``QUANTIZATIONS``, or None.
        parallel: ``tp``, ``pp`` or ``pptp`` for a group of processes that share the model, or None.
        ranks: Processes of that group; 1 without one, or if there is nobody to share with.
    """

    source: SaveMode
    compiled: bool = False
    unpadded: bool = False
    quantization: str | None = None
    parallel: str | None = None
    ranks: int = 1

    @property
    def runner(self) -> str:
        """The key of the runner among those of ``marserve.handlers.runners``."""
        if self.source != "pretrained":
            return self.source
        if self.parallel and self.ranks > 1:
            return "parallel"
        return "compiled" if self.compiled else "eager"

    @property
    def transforms(self) -> tuple[str, ...]:
        """What is put around that runner, the innermost first."""
        return ("unpadded",) if self.unpadded else ()


def find_execution(
    config: ModelConfig,
    serialized_file: str | None,
    task: str | None = None,
    where: str = "model-config.yaml",
    ranks: int = 1,
) -> Execution:
    """Returns the mode of execution that a configuration of the transformer handler means.

    Args:
        config: The whole configuration.
        serialized_file: The manifest's serialized file, or None.
        task: What the model does, if it is known; ``handler.mode`` otherwise.
        where: What to call the configuration's file in messages.
        ranks: Processes that share the model if the configuration does not say how many.

    Raises:
        ConfigError: If its keys do not go together; the text names both.
    """
    return _Question(config, serialized_file, task or config.handler.mode, where, ranks).answer()


@dataclass(frozen=True, slots=True)
class _Question:
    config: ModelConfig
    serialized_file: str | None
    task: str | None
    where: str
    ranks: int

    def answer(self) -> Execution:
        options, pt2 = self.config.handler, self.config.pt2
        parallel, ranks = self._parallel()
        mode = Execution(
            source=self._source(),
            compiled=pt2 is not None and pt2.compile,
            unpadded=bool(options.better_transformer),
            quantization=options.quantization,
            parallel=parallel,
            ranks=ranks,
        )
        self._check_hardware(mode)
        self._check_source(mode)
        self._check_quantization(mode)
        self._check_parallel(mode)
        if mode.unpadded and self.task in _WITHOUT_UNPADDED:
            self._refuse(
                "$.handler.BetterTransformer: true",
                f"$.handler.mode: {self.task}",
                "it speeds up models that read whole texts",
            )
        self._check_file(mode)
        return mode

    def _source(self) -> SaveMode:
        mode, pt2 = self.config.handler.save_mode, self.config.pt2
        if pt2 is not None and pt2.aot_compile:
            if mode not in (None, "aot_inductor"):
                self._refuse("$.pt2.export.aot_compile: true", f"$.handler.save_mode: {mode}")
            return "aot_inductor"
        suffix = PurePath(self.serialized_file or "").suffix
        return mode or _SOURCE_BY_SUFFIX.get(suffix, "pretrained")

    def _named(self, source: SaveMode) -> str:
        """The source as the user wrote it."""
        if self.config.handler.save_mode:
            return f"$.handler.save_mode: {source}"
        if self.config.pt2 and self.config.pt2.aot_compile:
            return "$.pt2.export.aot_compile: true"
        return f"the serialized file {self.serialized_file}, which is {source}"

    def _parallel(self) -> tuple[str | None, int]:
        config = self.config
        torchrun = config.torchrun.nproc_per_node if config.torchrun else None
        ranks = torchrun or config.parallel_level or self.ranks
        wanted = config.handler.model_parallel
        if wanted is None:
            wanted = config.parallel_type is not None and ranks > 1
        if not wanted:
            return None, 1
        return config.parallel_type or "tp", ranks

    def _check_hardware(self, mode: Execution) -> None:
        hardware = self.config.handler.hardware
        if hardware and hardware.startswith("neuron"):
            raise ConfigError(
                f"{self.where}: $.handler.hardware",
                f"{hardware} needs AWS's compiler and runtime, which are not supported",
                "remove the key to run on CPU or GPU",
            )
        if mode.source == "openvino" and self.config.device_type == "gpu":
            self._refuse("$.deviceType: gpu", self._named(mode.source), "it runs on the CPU")

    def _check_file(self, mode: Execution) -> None:
        if mode.source == "pretrained":
            return
        suffixes, name = SUFFIXES[mode.source], self.serialized_file
        if name is None or PurePath(name).suffix not in suffixes:
            raise ConfigError(
                f"{self.where}: {self._named(mode.source)}",
                f"expected a serialized file named *{' or *'.join(suffixes)}, got {name or 'none'}",
                "archive-model export writes such an archive",
            )

    def _check_source(self, mode: Execution) -> None:
        """What is done to weights while they are loaded cannot be done to a finished program."""
        if mode.source == "pretrained":
            return
        dtype = self.config.handler.dtype
        if self.task in _ENCODING_DECODING_TASKS:
            self._refuse(
                f"$.handler.mode: {self.task}",
                self._named(mode.source),
                "encoder and decoder run by turns: it needs save_mode: pretrained",
            )
        chosen = {
            "$.pt2.compile.enable: true": mode.compiled,
            "$.handler.model_parallel: true": mode.parallel is not None,
            f"$.handler.dtype: {dtype}": dtype not in DTYPES.get(mode.source, (None, "auto")),
        }
        for key, is_chosen in chosen.items():
            if is_chosen:
                self._refuse(key, self._named(mode.source), "it needs save_mode: pretrained")

    def _check_quantization(self, mode: Execution) -> None:
        possible = QUANTIZATIONS.get(mode.source, ())
        if mode.quantization is None or mode.quantization in possible:
            return
        key, source = f"$.handler.quantization: {mode.quantization}", self._named(mode.source)
        there_is = f"there is: {', '.join(possible)}" if possible else "it has none"
        self._refuse(key, source, there_is)

    def _check_parallel(self, mode: Execution) -> None:
        if mode.parallel is None:
            return
        key = "$.handler.model_parallel: true"
        if mode.parallel == "custom":
            self._refuse(
                "$.parallelType: custom", key, "a handler of your own says how; expected tp, pp"
            )
        if mode.ranks < 2 and self._level_is_given():
            raise ConfigError(
                f"{self.where}: $.handler.model_parallel",
                "true needs a group of processes",
                "expected $.torchrun.nproc-per-node: 2 or more, or no such key: one a GPU",
            )
        try:
            arrange(mode.parallel, max(mode.ranks, 2))
        except ValueError as error:
            raise ConfigError(f"{self.where}: $.parallelType", str(error)) from error
        if mode.compiled:
            self._refuse(key, "$.pt2.compile.enable: true")
        if mode.quantization:
            self._refuse(key, f"$.handler.quantization: {mode.quantization}")

    def _level_is_given(self) -> bool:
        torchrun = self.config.torchrun
        return bool(self.config.parallel_level or (torchrun and torchrun.nproc_per_node))

    def _refuse(self, key: str, against: str, why: str = "") -> NoReturn:
        name, _, value = key.partition(": ")
        raise ConfigError(f"{self.where}: {name}", f"{value} cannot run with {against}", why)
