"""The modes of execution that are tried, by the names that ``--modes`` takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from marserve.archiver.errors import ArchiveError
from marserve.archiver.handler_options import SaveMode
from marserve.handlers.cpu_features import cpu_features
from marserve.handlers.export.archive import exported_config

Numbers = Literal["float32", "bfloat16", "float16", "int8"]

_PACKAGES: dict[SaveMode, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("openvino",),
}
_BFLOAT16_UNITS = {"avx512_bf16", "amx_bf16", "asimdbf16"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mode of execution with the kind of numbers that it computes in.

    Args:
        source: What the model is run from.
        compiled: Whether it goes through ``torch.compile``.
        unpadded: Whether padding is kept out of the computation.
        numbers: What weights and activations are; of ``int8``, which stands for all of eight bits,
            only the weights are, at rest.
        quantization: As in ``handler.quantization``, or None.
    """

    source: SaveMode = "pretrained"
    compiled: bool = False
    unpadded: bool = False
    numbers: Numbers = "float32"
    quantization: str | None = None

    @property
    def needs_export(self) -> bool:
        """Whether a program must be made of the weights first."""
        return self.source != "pretrained"

    def config(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a model-config.yaml as plain values, brought to this mode.

        Args:
            raw: That of the archive.
        """
        config = exported_config(dict(raw), self.source, self.quantization)
        config["handler"]["BetterTransformer"] = self.unpadded
        if not self.needs_export:
            config["handler"]["dtype"] = "float32" if self.numbers == "int8" else self.numbers
        elif self.numbers == "bfloat16":
            config["handler"]["dtype"] = self.numbers
        if self.compiled:
            config["pt2"] = {"compile": {**_compile_options(raw), "enable": True}}
        return config

    def missing(self) -> str | None:
        """Returns the first package that this mode needs and that is not installed."""
        names = _PACKAGES.get(self.source, ())
        return next((name for name in names if importlib.util.find_spec(name) is None), None)


BASELINE = "eager"
CANDIDATES: dict[str, Candidate] = {
    BASELINE: Candidate(),
    "unpadded": Candidate(unpadded=True),
    "compiled": Candidate(compiled=True),
    "torchscript": Candidate("torchscript"),
    "onnx": Candidate("onnx"),
    "onnx-unpadded": Candidate("onnx", unpadded=True),
    "openvino": Candidate("openvino"),
    "openvino-unpadded": Candidate("openvino", unpadded=True),
    "openvino-bf16": Candidate("openvino", numbers="bfloat16"),
    "openvino-bf16-unpadded": Candidate("openvino", unpadded=True, numbers="bfloat16"),
    "aot_inductor": Candidate("aot_inductor"),
    "aot_inductor-unpadded": Candidate("aot_inductor", unpadded=True),
    "exported": Candidate("exported"),
    "eager-bf16": Candidate(numbers="bfloat16"),
    "unpadded-bf16": Candidate(unpadded=True, numbers="bfloat16"),
    "compiled-bf16": Candidate(compiled=True, numbers="bfloat16"),
    "eager-fp16": Candidate(numbers="float16"),
    "compiled-fp16": Candidate(compiled=True, numbers="float16"),
    "eager-int8": Candidate(numbers="int8", quantization="int8_dynamic"),
    "unpadded-int8": Candidate(unpadded=True, numbers="int8", quantization="int8_dynamic"),
    "compiled-int8": Candidate(compiled=True, numbers="int8", quantization="int8_dynamic"),
    "eager-int8-weights": Candidate(numbers="int8", quantization="int8_weight_only"),
    "eager-fp8": Candidate(numbers="int8", quantization="float8_dynamic"),
    "compiled-fp8": Candidate(compiled=True, numbers="int8", quantization="float8_dynamic"),
    "onnx-int8": Candidate("onnx", numbers="int8", quantization="int8_dynamic"),
    "onnx-int8-unpadded": Candidate(
        "onnx", unpadded=True, numbers="int8", quantization="int8_dynamic"
    ),
    "onnx-int8-weights": Candidate("onnx", numbers="int8", quantization="int8_weight_only"),
    "openvino-int8": Candidate("openvino", numbers="int8", quantization="int8_weight_only"),
}
"""By name; the ``-unpadded`` ones of programs run a batch in parts of similar length."""


def choose_candidates(
    names: Sequence[str], allow_quantized: bool, has_gpu: bool
) -> dict[str, Candidate]:
    """Returns the modes to try by name, eager first.

    Args:
        names: Those that the user names; none for all that suit the machine.
        allow_quantized: Whether those of fewer bits than 16 are among them, if none are named.
        has_gpu: Whether the model runs on a GPU.

    Raises:
        ArchiveError: If there is no mode of a name.
    """
    unknown = [name for name in names if name not in CANDIDATES]
    if unknown:
        raise ArchiveError(f"--modes: no mode {unknown[0]!r}; there are: {', '.join(CANDIDATES)}")
    chosen = names or [
        name
        for name, candidate in CANDIDATES.items()
        if _suits(candidate, allow_quantized, has_gpu)
    ]
    return {name: CANDIDATES[name] for name in dict.fromkeys((BASELINE, *chosen))}


def _suits(candidate: Candidate, allow_quantized: bool, has_gpu: bool) -> bool:
    """Half precision only where the machine computes in it; elsewhere it is slower than float32."""
    if candidate.numbers == "int8":
        return allow_quantized and (has_gpu or candidate.quantization != "float8_dynamic")
    if candidate.numbers == "float16":
        return has_gpu
    if has_gpu and candidate.source == "openvino":
        return False
    return candidate.numbers == "float32" or has_gpu or bool(computes_in_bfloat16())


def computes_in_bfloat16() -> bool:
    """Whether this processor has instructions for it; without, it is slower than float32."""
    return bool(_BFLOAT16_UNITS & {*cpu_features()})


def _compile_options(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The archive's own, in any of the forms that ``pt2`` can have."""
    section = raw.get("pt2")
    if isinstance(section, str):
        return {"backend": section}
    if not isinstance(section, dict):
        return {}
    options = section if not {"compile", "export"} & section.keys() else section.get("compile")
    return dict(options) if isinstance(options, dict) else {}
