"""Tensors as Triton models see them, and the names of datatypes in all of their spellings."""

from __future__ import annotations

from typing import Any

import numpy as np

# Number in Triton's list of types: word of the protocol, type of numpy.
_TYPES: dict[int, tuple[str, Any]] = {
    1: ("BOOL", np.bool_),
    2: ("UINT8", np.uint8),
    3: ("UINT16", np.uint16),
    4: ("UINT32", np.uint32),
    5: ("UINT64", np.uint64),
    6: ("INT8", np.int8),
    7: ("INT16", np.int16),
    8: ("INT32", np.int32),
    9: ("INT64", np.int64),
    10: ("FP16", np.float16),
    11: ("FP32", np.float32),
    12: ("FP64", np.float64),
    13: ("STRING", np.object_),
}
_BY_WORD = dict(_TYPES.values()) | {"BYTES": np.object_}
_CPU = 1  # of DLPack's device types


class Tensor:
    """A named tensor.

    Args:
        name: Of the input or output.
        data: An array; ``BYTES`` are objects that are bytes or texts.

    Raises:
        TypeError: If the data are no array of a type that tensors can have.
    """

    def __init__(self, name: str, data: Any) -> None:
        if not isinstance(data, np.ndarray) and not hasattr(data, "__dlpack__"):
            raise TypeError(f"tensor {name!r}: expected a numpy array, got {type(data).__name__}")
        self._name = str(name)
        self._data = data

    def name(self) -> str:
        """Returns its name."""
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Returns its values, uncopied where they are in the memory of the host."""
        if isinstance(self._data, np.ndarray):
            return self._data
        if hasattr(self._data, "detach"):
            array: np.ndarray[Any, Any] = self._data.detach().cpu().numpy()
            return array
        return np.from_dlpack(self._data)

    def is_cpu(self) -> bool:
        """Tells whether its values are in the memory of the host."""
        if isinstance(self._data, np.ndarray):
            return True
        return int(self._data.__dlpack_device__()[0]) == _CPU

    def shape(self) -> list[int]:
        """Returns its dimensions."""
        return [int(size) for size in self._data.shape]

    def triton_dtype(self) -> str:
        """Returns the word of the protocol for its elements."""
        dtype = self.as_numpy().dtype
        return next((word for word, each in _BY_WORD.items() if dtype == each), "BYTES")

    def to_dlpack(self) -> Any:
        """Returns its values for any library that takes DLPack."""
        return self._writable().__dlpack__()

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        data = self._writable()
        return data.__dlpack__() if isinstance(data, np.ndarray) else data.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._data.__dlpack_device__()
        return int(kind), int(number)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """Makes a tensor of one of another library, uncopied.

        Args:
            name: Of the new one.
            tensor: What has ``__dlpack__``, or a capsule.
        """
        if hasattr(tensor, "__dlpack__"):
            return Tensor(name, tensor)
        import torch.utils.dlpack  # numpy takes no bare capsule

        return Tensor(name, torch.utils.dlpack.from_dlpack(tensor))

    def _writable(self) -> Any:
        """DLPack has no form for memory that may not be written to, which inputs are."""
        data = self._data
        if isinstance(data, np.ndarray) and not data.flags.writeable:
            data = self._data = data.copy()
        return data


def triton_string_to_numpy(word: str) -> Any:
    """Returns the type of numpy for ``TYPE_FP32`` and the like; bfloat16 is read as float32."""
    if word == "TYPE_BF16":
        return np.float32
    return _BY_WORD[word.removeprefix("TYPE_")]


def triton_to_numpy_type(number: int) -> Any:
    """Returns the type of numpy for a number in Triton's list of types."""
    return _TYPES[int(number)][1]


def numpy_to_triton_type(dtype: Any) -> int:
    """Returns the number in Triton's list of types for a type of numpy."""
    kind = np.dtype(dtype)
    if kind.kind in "OSU":
        return 13
    return next(number for number, (_, each) in _TYPES.items() if kind == each)


def serialize_byte_tensor(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the elements of a ``BYTES`` tensor end to end, each behind its length."""
    pieces = []
    for each in tensor.ravel().tolist():
        text = each if isinstance(each, bytes) else str(each).encode()
        pieces += [len(text).to_bytes(4, "little"), text]
    return np.frombuffer(b"".join(pieces), np.uint8)


def deserialize_bytes_tensor(encoded: Any) -> np.ndarray[Any, Any]:
    """Returns the elements of a ``BYTES`` tensor that ``serialize_byte_tensor`` wrote."""
    data, at = bytes(encoded), 0
    values: list[bytes] = []
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        values.append(data[at + 4 : end])
        at = end
    out = np.empty(len(values), object)
    out[:] = values
    return out
