from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.media_models import tone, wav

from marserve.handlers.audio import read_samples, read_wav, resample
from marserve.handlers.errors import RequestError


def file(kind: int, bits: int, body: bytes, channels: int = 1, rate: int = 8000) -> bytes:
    size = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * size, size, bits)
    if kind == 0xFFFE:
        form += struct.pack("<HHIH", 22, bits, 0, 1) + bytes(14)
    parts = b"fmt " + struct.pack("<I", len(form)) + form
    parts += b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk is padded
    parts += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts


@pytest.mark.parametrize(
    ("kind", "bits", "body"),
    [
        (1, 8, bytes([128, 192, 0])),
        (1, 16, struct.pack("<3h", 0, 16384, -32768)),
        (1, 24, b"\0\0\0\0\0\x40\0\0\x80"),
        (1, 32, struct.pack("<3i", 0, 2**30, -(2**31))),
        (0xFFFE, 16, struct.pack("<3h", 0, 16384, -32768)),
        (3, 32, struct.pack("<3f", 0, 0.5, -1)),
        (3, 64, struct.pack("<3d", 0, 0.5, -1)),
    ],
)
def test_reads_every_kind_of_samples(kind: int, bits: int, body: bytes) -> None:
    samples, rate = read_wav(file(kind, bits, body))

    assert rate == 8000
    assert [0.0, 0.5, -1.0] == samples.tolist()
    assert samples.dtype == np.float32


def test_channels_are_averaged() -> None:
    body = struct.pack("<4h", 16384, 0, -16384, -16384)

    samples, _ = read_wav(file(1, 16, body, channels=2))

    assert [0.25, -0.5] == samples.tolist()


def test_a_file_that_ends_early_gives_what_is_there() -> None:
    samples, _ = read_wav(wav([0.5, 0.25, 0.125])[:-3])

    assert [0.5] == pytest.approx(samples.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF\0\0\0\0WAVE",
        wav([]),
        file(1, 12, b"\0\0\0"),
        file(6, 8, b"\0\0\0"),
        file(1, 16, b"\0\0", channels=0),
        file(1, 16, b"\0\0", rate=0),
    ],
)
def test_what_is_no_wav_file_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        read_wav(data)


@pytest.mark.parametrize(
    ("array", "rate"),
    [([0.0], 0), ([0.0], True), ([0.0], "x"), ([], 8000), (["a"], 8000), ([float("nan")], 8000)],
)
def test_what_is_no_sound_is_refused(array: object, rate: object) -> None:
    with pytest.raises(RequestError):
        read_samples(array, rate)


@pytest.mark.parametrize(("rate", "target"), [(8000, 16000), (44100, 16000), (48000, 16000)])
def test_a_tone_stays_the_same_at_another_rate(rate: int, target: int) -> None:
    resampled = resample(np.array(tone(0.5, rate), dtype=np.float32), rate, target)

    expected = np.array(tone(0.5, target), dtype=np.float32)
    assert len(expected) == len(resampled)
    middle = slice(400, -400)
    assert np.abs(expected - resampled)[middle].max() < 5e-3


def test_what_the_lower_rate_cannot_hold_is_filtered_out() -> None:
    high = np.array(tone(0.5, 48000, hertz=11000.0), dtype=np.float32)

    resampled = resample(high, 48000, 16000)

    assert np.abs(resampled[400:-400]).max() < 2e-3
