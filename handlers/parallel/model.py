"""One rank's part of a transformers model: built without weights, cut, then filled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.parallel.checkpoint import Checkpoint, Cut
from marserve.handlers.parallel.grid import Grid, Place
from marserve.handlers.parallel.plans import Plan, find_plan
from marserve.handlers.runners.base import RunnerOptions

_PACKED = 3  # queries, keys, values


def load_part(options: RunnerOptions, grid: Grid) -> nn.Module:
    """Loads this rank's part of a model; called as the whole one, together with the other ranks.

    Args:
        options: Which model, and how.
        grid: The ranks.

    Raises:
        HandlerLoadError: If the model cannot be divided, or its weights are not all there.
    """
    place = grid.place
    plan = find_plan(options.config, place.stages, place.shards)
    checkpoint = Checkpoint(options.directory, options.weights_file)
    module = _build(options, _dtype(options, checkpoint))
    names = {each: name for name, each in module.named_modules()}
    cuts = _Cutter(plan, grid).cut(module)
    unused = _take_stage(module, plan, grid)
    _Filler(options, checkpoint, module, names, cuts, unused, place).fill()
    return module.eval()


def _dtype(options: RunnerOptions, checkpoint: Checkpoint) -> torch.dtype:
    if options.dtype != "auto":
        chosen: torch.dtype = getattr(torch, options.dtype)
        return chosen
    saved = getattr(options.config, "dtype", None)
    if isinstance(saved, str):
        saved = getattr(torch, saved)
    return saved if isinstance(saved, torch.dtype) else checkpoint.floating_dtype()


def _build(options: RunnerOptions, dtype: torch.dtype) -> nn.Module:
    import transformers

    keywords: dict[str, Any] = {"dtype": dtype}
    if options.attn_implementation:
        keywords["attn_implementation"] = options.attn_implementation
    with _parameters_without_memory():
        auto = getattr(transformers, options.auto_class)
        module: Any = auto.from_config(options.config, **keywords)
    module.tie_weights()
    built: nn.Module = module.requires_grad_(False)
    return built


@contextmanager
def _parameters_without_memory() -> Iterator[None]:
    """Parameters are made on the meta device; buffers, which are computed, as usual."""
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and param.device.type != "meta":
            param = nn.Parameter(param.to("meta"), requires_grad=False)
        register(module, name, param)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


class _Cutter:
    """Cuts the matrices of a model that has no weights yet.

    Args:
        plan: Which ones.
        grid: Of whose shards this rank has one.
    """

    def __init__(self, plan: Plan, grid: Grid) -> None:
        self._plan = plan
        self._grid = grid
        self._place = grid.place
        self._cuts: dict[nn.Module, dict[str, Cut]] = {}

    def cut(self, module: nn.Module) -> dict[nn.Module, dict[str, Cut]]:
        """Returns for each matrix that was cut which ranges of its weights are needed here."""
        plan = self._plan
        if self._place.shards == 1:
            return {}
        for name, each in list(module.named_modules()):
            full = f".{name}"
            if full.endswith(plan.columns):
                self._columns(each, 1)
            elif full.endswith(plan.packed or ("\0",)):
                self._columns(each, _PACKED)
            elif full.endswith(plan.rows):
                self._rows(each)
            elif full.endswith(plan.biases or ("\0",)):
                self._set(each, "weight", 1, 1)
        owners = {name.rpartition(".")[0] for name, e in module.named_modules() if e in self._cuts}
        for owner in owners:
            self._divide_counts(module.get_submodule(owner))
        return self._cuts

    def _columns(self, matrix: nn.Module, pieces: int) -> None:
        self._set(matrix, "weight", self._outputs_dim(matrix), pieces)
        if getattr(matrix, "bias", None) is not None:
            self._set(matrix, "bias", 0, pieces)
        self._divide(matrix, "out_features" if isinstance(matrix, nn.Linear) else "nf")

    def _rows(self, matrix: nn.Module) -> None:
        self._set(matrix, "weight", 1 - self._outputs_dim(matrix), 1)
        self._divide(matrix, "in_features" if isinstance(matrix, nn.Linear) else "nx")
        add_up: Any = self._grid.add_up
        matrix.register_forward_hook(lambda _, __, output: add_up(output))

    def _outputs_dim(self, matrix: nn.Module) -> int:
        return 0 if isinstance(matrix, nn.Linear) else 1  # GPT-2 has its matrices transposed

    def _set(self, matrix: nn.Module, name: str, dim: int, pieces: int) -> None:
        old: Tensor = getattr(matrix, name)
        size, shards = old.shape[dim] // pieces, self._place.shards
        if size % shards:
            raise HandlerLoadError(
                f"model_parallel: a matrix of {tuple(old.shape)} cannot be cut into {shards} parts"
            )
        part = size // shards
        first = self._place.shard * part
        ranges = [(piece * size + first, piece * size + first + part) for piece in range(pieces)]
        shape = list(old.shape)
        shape[dim] = part * pieces
        empty = torch.empty(shape, device="meta", dtype=old.dtype)
        setattr(matrix, name, nn.Parameter(empty, requires_grad=False))
        self._cuts.setdefault(matrix, {})[name] = dim, ranges

    def _divide_counts(self, attention: nn.Module) -> None:
        for name in self._plan.counts:
            if hasattr(attention, name):
                self._divide(attention, name)

    def _divide(self, owner: Any, name: str) -> None:
        setattr(owner, name, getattr(owner, name) // self._place.shards)


class _Blank(nn.Module):
    """Stands for the head of a model on ranks that do not have its last layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.new_zeros(()).expand(*hidden.shape[:-1], self._width)


def _take_stage(module: Any, plan: Plan, grid: Grid) -> set[nn.Module]:
    """Keeps the layers of this rank's stage; returns the modules whose weights are of no use."""
    place = grid.place
    if place.stages == 1:
        return set()
    base = module.base_model
    layers = base.get_submodule(plan.layers)
    first, last = (len(layers) * (place.stage + i) // place.stages for i in (0, 1))
    kept = nn.ModuleList(list(layers)[first:last])
    base.set_submodule(plan.layers, kept)
    for index, layer in enumerate(kept):
        parts: Iterator[Any] = layer.modules()
        for part in parts:
            if hasattr(part, "layer_idx"):
                part.layer_idx = index  # where its keys and values are in this rank's cache
    if place.stage:
        kept[0].register_forward_pre_hook(lambda _, args: (grid.from_previous(args[0]), *args[1:]))
    if place.is_last:
        head = module.get_output_embeddings()
        tied = head is not None and head.weight is module.get_input_embeddings().weight
        return set() if tied else {module.get_input_embeddings()}
    kept[-1].register_forward_hook(lambda _, __, output: grid.to_next(_hidden(output)))
    head = module.get_output_embeddings()
    if head is not None:
        module.set_output_embeddings(_Blank(head.weight.shape[0]))
    return {module.get_input_embeddings()} if place.stage else set()


def _hidden(output: Any) -> Tensor:
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


class _Filler:
    """Gives a model without weights those that this rank needs.

    Args:
        options: Which model, and where it is to be.
        checkpoint: Has the weights.
        module: The rank's part.
        names: What each of its modules is called in the whole model.
        cuts: Of which weights only a part is needed.
        unused: Modules whose weights nobody looks at here.
        place: Of this rank.
    """

    def __init__(
        self,
        options: RunnerOptions,
        checkpoint: Checkpoint,
        module: Any,
        names: dict[nn.Module, str],
        cuts: dict[nn.Module, dict[str, Cut]],
        unused: set[nn.Module],
        place: Place,
    ) -> None:
        self._options = options
        self._checkpoint = checkpoint
        self._module = module
        self._names = names
        self._cuts = cuts
        self._unused = unused
        self._place = place
        self._filled: dict[int, nn.Parameter] = {}
        self._missing: list[str] = []
        self._emptied: list[nn.Parameter] = []  # kept, so that no other object gets their ids

    def fill(self) -> None:
        """Fills all parameters, and the buffers that were saved.

        Raises:
            HandlerLoadError: If weights are missing.
        """
        aliases: dict[int, list[str]] = {}
        for each in self._module.modules():
            for name, parameter in each._parameters.items():
                if parameter is not None:
                    aliases.setdefault(id(parameter), []).append(f"{self._names[each]}.{name}")
        for each in list(self._module.modules()):
            for name, parameter in list(each._parameters.items()):
                if parameter is not None:
                    each._parameters[name] = self._new(each, name, parameter, aliases)
            self._buffers(each)
        if self._missing:
            raise HandlerLoadError(
                f"the weights do not fit {self._options.auto_class}:"
                f" {', '.join(self._missing[:5])} missing ({len(self._missing)} in all)"
            )

    def _new(
        self, owner: nn.Module, name: str, empty: nn.Parameter, aliases: dict[int, list[str]]
    ) -> nn.Parameter:
        known = self._filled.get(id(empty))
        if known is None:
            value = self._value(owner, name, empty, aliases[id(empty)])
            self._filled[id(empty)] = known = nn.Parameter(value, requires_grad=False)
            self._emptied.append(empty)
        return known

    def _value(self, owner: nn.Module, name: str, empty: Tensor, names: list[str]) -> Tensor:
        device, dtype = self._options.device, self._dtype(names[0], empty.dtype)
        if owner in self._unused:
            return torch.zeros((), device=device, dtype=dtype).expand(empty.shape)
        saved = self._find(names)
        if saved is None:
            self._missing += [n for n in names[:1] if not n.startswith(self._options.spare_weights)]
            return torch.zeros(empty.shape, device=device, dtype=dtype)
        cut = self._cuts.get(owner, {}).get(name)
        value = self._checkpoint.read(saved, cut)
        if value.shape != empty.shape:
            raise HandlerLoadError(
                f"the weights do not fit {self._options.auto_class}: {saved} is"
                f" {list(value.shape)}, expected {list(empty.shape)}"
            )
        if name == "bias" and owner in self._cuts and cut is None and self._place.shard:
            value = torch.zeros_like(value)  # added up with the others' it counts once
        return value.to(device=device, dtype=dtype)

    def _find(self, names: list[str]) -> str | None:
        prefix = self._module.base_model_prefix
        found = (self._checkpoint.find(name, prefix) for name in names)
        return next((name for name in found if name is not None), None)

    def _dtype(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """Some weights do not bear fewer bits; a model says which."""
        exempt = getattr(self._module, "_keep_in_fp32_modules", None) or ()
        if dtype == torch.float16 and any(part in exempt for part in name.split(".")):
            return torch.float32
        return dtype

    def _buffers(self, owner: nn.Module) -> None:
        for name, buffer in owner._buffers.items():
            if buffer is None:
                continue
            saved = None
            if name not in owner._non_persistent_buffers_set:
                saved = self._find([f"{self._names.get(owner, '')}.{name}".lstrip(".")])
            value = buffer if saved is None else self._checkpoint.read(saved).to(buffer.dtype)
            owner._buffers[name] = value.to(self._options.device)
