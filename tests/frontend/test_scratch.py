from __future__ import annotations

import os
from pathlib import Path

from marserve.frontend.scratch import ScratchDirectory


def test_only_what_a_server_made_is_swept(tmp_path: Path) -> None:
    left, others = tmp_path / "marserve-123-abcd_123", tmp_path / "marserve-my-models"
    for folder in (left, others):
        folder.mkdir()
        os.utime(folder, (0, 0))
    scratch = ScratchDirectory(tmp_path)

    assert others.exists()
    assert not left.exists()
    scratch.close()
