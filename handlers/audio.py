"""Sound to samples: WAV files read with NumPy alone, one channel, brought to a model's own rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marserve.handlers.errors import RequestError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_ZERO_CROSSINGS = 16  # of the filter, each side: the longer, the sharper
_PASSED = 0.95  # of the frequencies that both rates have: the filter needs room to fall
_MAX_RATE = 768_000

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Format:
    kind: int
    channels: int
    rate: int
    bits: int


def read_wav(data: bytes) -> tuple[Samples, int]:
    """Decodes a WAV file.

    Source: Microsoft and IBM, "Multimedia Programming Interface and Data Specifications 1.0", 1991.

    Args:
        data: The file: whole numbers of 8, 16, 24 or 32 bits, or floats of 32 or 64.

    Returns:
        Samples from -1 to 1, ``[samples] float32``, the mean of all channels; and their rate in Hz.

    Raises:
        RequestError: If it is no such file.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise RequestError(
            f"the body of {len(data)} bytes is no WAV file; other formats must be converted first,"
            " for instance with ffmpeg -i FILE -ac 1 -ar 16000 out.wav"
        )
    chunks = _chunks(data)
    if "fmt " not in chunks or "data" not in chunks or len(chunks["fmt "]) < 16:
        raise RequestError("the WAV file is damaged: it has no format or no samples")
    form = _format(chunks["fmt "])
    samples = _decode(chunks["data"], form)
    whole = len(samples) // form.channels * form.channels
    if not whole:
        raise RequestError("the WAV file holds no sound")
    mono = samples[:whole].reshape(-1, form.channels).mean(1)
    return mono.astype(np.float32), form.rate


def read_samples(array: Any, rate: Any) -> tuple[Samples, int]:
    """Returns samples that came as numbers: ``[samples]``, or ``[channels, samples]``.

    Raises:
        RequestError: If they are none.
    """
    if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate <= _MAX_RATE:
        raise RequestError(f'"sampling_rate" is {rate!r:.80}; expected samples a second')
    try:
        samples: Samples = np.asarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RequestError(f'"array" holds no numbers: {error}') from None
    if samples.ndim == 2:
        samples = samples.mean(0, dtype=np.float32)
    if samples.ndim != 1 or not samples.size or not np.isfinite(samples).all():
        raise RequestError('"array" is no list of finite numbers')
    return samples, rate


def resample(samples: Samples, rate: int, target: int) -> Samples:
    """Changes the rate by a filter of windowed sinc functions, one for each phase.

    Source: J. O. Smith, "Digital Audio Resampling", 2002.

    Args:
        samples: ``[samples]`` at ``rate``.
        rate: Hz.
        target: Hz.

    Returns:
        ``[ceil(samples * target / rate)]``.
    """
    if rate == target:
        return samples
    common = math.gcd(rate, target)
    step, phases = rate // common, target // common
    cutoff = min(step, phases) * _PASSED
    width = math.ceil(_ZERO_CROSSINGS * step / cutoff)
    offsets = torch.arange(-width, width + step, dtype=torch.float64) / step
    times = offsets - torch.arange(phases, dtype=torch.float64)[:, None] / phases
    times = (times * cutoff).clamp(-_ZERO_CROSSINGS, _ZERO_CROSSINGS)
    window = torch.cos(times * math.pi / _ZERO_CROSSINGS / 2) ** 2
    kernel = (torch.sinc(times) * window * (cutoff / step)).float()[:, None]
    padded = torch.nn.functional.pad(torch.from_numpy(samples)[None, None], (width, width + step))
    filtered = torch.nn.functional.conv1d(padded, kernel, stride=step)[0]
    length = math.ceil(len(samples) * phases / step)
    resampled: Samples = filtered.T.reshape(-1)[:length].numpy()
    return resampled


def _chunks(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        found.setdefault(data[at : at + 4].decode("latin-1"), data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found


def _format(chunk: bytes) -> _Format:
    fields = np.frombuffer(chunk[:16], dtype="<u2").tolist()
    kind, channels, bits = fields[0], fields[1], fields[7]
    rate = fields[2] | fields[3] << 16
    if kind == _EXTENSIBLE and len(chunk) >= 26:
        kind = int.from_bytes(chunk[24:26], "little")
    if not channels or not 0 < rate <= _MAX_RATE:
        raise RequestError(f"the WAV file is damaged: {channels} channels at {rate} Hz")
    return _Format(kind, channels, rate, bits)


def _decode(data: bytes, form: _Format) -> NDArray[Any]:
    size = form.bits // 8
    usable = data[: len(data) // size * size] if size else b""
    if form.kind == _FLOAT and form.bits in (32, 64):
        numbers = np.frombuffer(usable, dtype=f"<f{size}")
        return np.where(np.isfinite(numbers), numbers, 0)
    if form.kind == _PCM and form.bits == 8:
        return (np.frombuffer(usable, dtype=np.uint8).astype(np.float32) - 128) / 128
    if form.kind == _PCM and form.bits in (16, 32):
        numbers = np.frombuffer(usable, dtype=f"<i{size}").astype(np.float32)
        return numbers / np.float32(2 ** (form.bits - 1))
    if form.kind == _PCM and form.bits == 24:
        wide = np.zeros((len(usable) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(usable, dtype=np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    raise RequestError(
        f"the WAV file holds samples of format {form.kind} with {form.bits} bits; expected PCM of"
        " 8, 16, 24 or 32 bits, or floats of 32 or 64"
    )
