"""serve check of a Triton repository: what is wrong, has no effect, or is missing from it."""

from __future__ import annotations

from pathlib import Path

from marserve.frontend.review import review

ENSEMBLE = """
platform: "ensemble"
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step {
    model_name: "%s"
    input_map { key: "A" value: "X" }
    output_map { key: "B" value: "Y" }
  }
}
"""


def make(store: Path, name: str, config: str, code: str | None = None) -> None:
    (store / name / "1").mkdir(parents=True)
    (store / name / "config.pbtxt").write_text(config)
    if code is not None:
        (store / name / "1" / "model.py").write_text(code)


def test_a_repository_is_reviewed_line_by_line(tmp_path: Path) -> None:
    make(tmp_path, "bad", 'backend: "python"\nmax_batch_sise: 3', "")
    make(
        tmp_path,
        "idle",
        'backend: "python"\n\noptimization { cuda { graphs: true } }',
        "import helper\nimport triton_python_backend_utils\nimport no_such_package\n",
    )
    (tmp_path / "idle" / "helper.py").touch()
    make(tmp_path, "whole", ENSEMBLE % "idle")
    make(tmp_path, "torn", ENSEMBLE % "nobody")

    findings = {(f.level, f.container, f.file, f.line): f.text for f in review(tmp_path)}

    assert findings == {
        ("error", "bad", "config.pbtxt", 2): (
            "max_batch_sise: unknown key (did you mean max_batch_size?)"
        ),
        ("note", "idle/1", "config.pbtxt", 3): (
            "optimization.cuda: has no effect: the engine's own settings are used"
        ),
        ("error", "idle/1", "model.py", 3): "no_such_package is imported and not installed here",
        ("note", "torn/1", "config.pbtxt", 0): (
            "the step 'nobody' is no model here: requests will get 404 until it is"
        ),
    }
