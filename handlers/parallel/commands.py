"""What rank 0 tells the others to compute: a word, a few numbers and named tensors, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Command(NamedTuple):
    """One thing to do.

    Args:
        word: What.
        tensors: Of what.
        decoder: Which of the texts being generated it is about, where it is about one.
        forget: Those that nobody asks for any more.
    """

    word: str
    tensors: dict[str, Tensor]
    decoder: int = 0
    forget: tuple[int, ...] = ()


def tell(command: Command, group: Any) -> None:
    """Sends a command to all ranks of a group; called by rank 0."""
    values = {name: t.detach().cpu().contiguous() for name, t in command.tensors.items()}
    shapes = {name: [str(v.dtype).removeprefix("torch."), *v.shape] for name, v in values.items()}
    head = json.dumps([command.word, command.decoder, command.forget, shapes]).encode()
    parts = [torch.frombuffer(bytearray(head), dtype=torch.uint8)]
    parts += [value.reshape(-1).view(torch.uint8) for value in values.values() if value.numel()]
    body = torch.cat(parts)
    dist.broadcast(torch.tensor([len(head), len(body)]), 0, group=group)
    dist.broadcast(body, 0, group=group)


def hear(group: Any, device: torch.device) -> Command:
    """Returns the next command, its tensors on a device; waits as long as it takes.

    Raises:
        RuntimeError: If rank 0 is gone.
    """
    sizes = torch.zeros(2, dtype=torch.int64)
    dist.broadcast(sizes, 0, group=group)
    head_size, size = sizes.tolist()
    body = torch.empty(size, dtype=torch.uint8)
    dist.broadcast(body, 0, group=group)
    word, decoder, forget, shapes = json.loads(bytes(body[:head_size].tolist()))
    tensors = _cut(body[head_size:], shapes)
    moved = {name: tensor.to(device) for name, tensor in tensors.items()}
    return Command(word, moved, decoder, tuple(forget))


def _cut(data: Tensor, shapes: Mapping[str, list[Any]]) -> dict[str, Tensor]:
    tensors, at = {}, 0
    for name, (kind, *shape) in shapes.items():
        tensors[name] = tensor = torch.empty(shape, dtype=getattr(torch, kind))
        size = tensor.numel() * tensor.element_size()
        if size:
            tensor.view(-1).view(torch.uint8).copy_(data[at : at + size])
        at += size
    return tensors
