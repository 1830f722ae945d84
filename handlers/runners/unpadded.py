"""Unpadded batches: all real tokens of a batch as one sequence, attention within each text.

The model's own layers run; only what enters and leaves its encoder changes: padding is taken out
before the first layer and put back, as zeros, behind the last. Of a batch of 32 realistic lengths
that leaves 28 % of the rows of every matrix product. A classifier's last layer is computed for the
first token of each text alone, where its head reads no other.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.runners import length_sorted
from marserve.handlers.runners.base import Inputs, Outputs, Runner, RunnerOptions, padded_probe
from marserve.handlers.runners.eager import EagerRunner
from marserve.handlers.runners.first_token import narrowed
from marserve.handlers.runners.unpadded_attention import KEYWORD, NAME, Packing, register

ENCODERS = {
    "albert": "encoder",
    "bert": "encoder",
    "camembert": "encoder",
    "data2vec-text": "encoder",
    "distilbert": "transformer",
    "electra": "encoder",
    "ernie": "encoder",
    "roberta": "encoder",
    "roberta-prelayernorm": "encoder",
    "xlm-roberta": "encoder",
    "xlm-roberta-xl": "encoder",
}
"""Attribute of the base model that holds all layers, by the config's ``model_type``."""

_FILL_WORTH_PACKING = 0.95  # above this share of real tokens there is hardly anything to leave out
_PROBE_LENGTHS = (5, 2, 11, 7)
_TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}

_log = logging.getLogger(__name__)


class UnpaddedRunner:
    """Runs batches without their padding.

    Args:
        runner: Runs the model; its encoder is changed to take ``packing``.
        encoder: Attribute of the base model that holds all layers.
    """

    def __init__(self, runner: EagerRunner, encoder: str) -> None:
        self._runner = runner
        module: Any = runner.module
        register()
        self._attention = module.config._attn_implementation
        module.set_attn_implementation(NAME)
        model: Any = narrowed(module)
        self._fast = runner.calling(model)
        layers: nn.Module = getattr(model.base_model, encoder)
        self._hooks = [layers.register_forward_pre_hook(_take_out, with_kwargs=True)]
        if model is module:  # otherwise a row of one token leaves the layers for each text
            self._hooks.append(layers.register_forward_hook(_put_back, with_kwargs=True))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that the model takes."""
        return self._runner.input_names

    @property
    def device(self) -> torch.device:
        """Where the inputs must be."""
        return self._runner.device

    @property
    def module(self) -> nn.Module:
        """The eager model; called without ``packing`` it takes padded rows as ever."""
        return self._runner.module

    def __call__(self, inputs: Inputs) -> Outputs:
        """Runs one padded batch."""
        mask = inputs["attention_mask"]
        packing = Packing(mask)
        if 0 in packing.lengths:  # a text without a first token; what its row gives is the model's
            return self._runner(inputs)
        if sum(packing.lengths) > _FILL_WORTH_PACKING * mask.numel():
            return self._fast(inputs)
        return self.packed(inputs, packing)

    @property
    def padded(self) -> EagerRunner:
        """The wrapped runner, which computes padding too, and every token of every layer."""
        return self._runner

    def restore(self) -> EagerRunner:
        """Returns the wrapped runner as it was."""
        for hook in self._hooks:
            hook.remove()
        module: Any = self._runner.module
        module.set_attn_implementation(self._attention)
        return self._runner

    def packed(self, inputs: Inputs, packing: Packing) -> Outputs:
        """Runs one padded batch without its padding, however little that is."""
        more: dict[str, Any] = {KEYWORD: packing}
        return self._fast({**inputs, **more})

    def decoder(self) -> Any:
        """Returns the wrapped runner's decoder."""
        return self._runner.decoder()

    def warm_up(self) -> None:
        """Warms the wrapped runner up."""
        self._runner.warm_up()


def apply(runner: Runner, options: RunnerOptions) -> Runner:
    """Wraps a runner: packed where its model can be, in parts of similar length where it cannot.

    It can if it runs eagerly, its layers are of a kind in ``ENCODERS``, its attention is SDPA, and
    its packed outputs are those of padded rows, which is tried. Which way was taken, and why, is
    logged.

    Raises:
        HandlerLoadError: If the model takes no attention mask, which says what padding is.
    """
    obstacle = _obstacle(runner)
    if obstacle is None and isinstance(runner, EagerRunner):
        unpadded = UnpaddedRunner(runner, ENCODERS[_kind(runner)])
        obstacle = _difference(unpadded, options)
        if obstacle is None:
            _log.info("BetterTransformer: tokens are packed without padding")
            return unpadded
        unpadded.restore()
    _log.warning("BetterTransformer: batches run in parts of similar length, as %s", obstacle)
    return length_sorted.apply(runner, options)


def _kind(runner: Runner) -> str:
    return str(getattr(getattr(runner.module, "config", None), "model_type", "unknown"))


def _obstacle(runner: Runner) -> str | None:
    """Why a model cannot be packed, as far as that is known without running it."""
    if "attention_mask" not in runner.input_names:
        return "the model takes no attention_mask"
    if type(runner) is not EagerRunner:
        return "the model does not run eagerly"
    if _kind(runner) not in ENCODERS:
        return f"models of type {_kind(runner)} are not known to pack ({', '.join(ENCODERS)} are)"
    config: Any = runner.module.config
    if getattr(config, "is_decoder", False):
        return "the model is a decoder"
    if config._attn_implementation != "sdpa":
        return f"attn_implementation is {config._attn_implementation}, not sdpa"
    return None


def _difference(runner: UnpaddedRunner, options: RunnerOptions) -> str | None:
    """Compares packed with padded outputs on a small batch; returns what is wrong, or None."""
    inputs = padded_probe(runner.module, _PROBE_LENGTHS)
    mask = inputs["attention_mask"]
    try:
        packed = runner.packed(inputs, Packing(mask))
    except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError) as error:
        return f"the packed model fails: {error}"
    expected = runner.padded(inputs)
    kept = mask.bool() if options.per_token else slice(None)
    for name, values in expected.items():
        tolerance = _TOLERANCES.get(values.dtype, 1e-4)
        found = packed[name][kept]
        if not torch.allclose(values[kept], found, rtol=tolerance, atol=tolerance):
            difference = (values[kept] - found).abs().max().item()
            return f"{name} of packed tokens differ by {difference:.2g}"
    return None


def _take_out(
    layers: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Packs the embeddings on their way into the encoder, and drops the mask."""
    packing: Packing | None = kwargs.get(KEYWORD)
    if packing is None:
        return None
    kwargs = {**kwargs, "attention_mask": None}
    if args:
        return (packing.pack(args[0]),), kwargs
    return (), {**kwargs, "hidden_states": packing.pack(kwargs["hidden_states"])}


def _put_back(layers: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Spreads what leaves the encoder over padded rows again."""
    packing: Packing | None = kwargs.get(KEYWORD)
    if packing is None:
        return None
    states: Tensor = output.last_hidden_state
    output.last_hidden_state = packing.unpack(states)
    return output
