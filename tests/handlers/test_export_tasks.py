"""Models of two programs, an encoder and a decoder, are refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.handlers.exporting import pack
from tests.media_models import save

from marserve.archiver.errors import MarserveError
from marserve.handlers.export.archive import ExportSpec, export_archive


@pytest.mark.parametrize(("kind", "task"), [("t5", "summarization"), ("whisper", None)])
def test_two_programs_in_one_are_refused(tmp_path: Path, kind: str, task: str | None) -> None:
    weights = pack(save(kind, tmp_path / "saved"), task or "automatic_speech_recognition", tmp_path)

    with pytest.raises(MarserveError, match="decoder"):
        export_archive(ExportSpec(archive=weights, target=tmp_path / "program", source="onnx"))
