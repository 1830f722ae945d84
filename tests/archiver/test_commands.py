"""Further commands of archive-model, which other packages may bring."""

from __future__ import annotations

from pathlib import Path

from tests.archiver.conftest import Run


def install(site: Path, command: str, module: str, code: str | None) -> None:
    """Puts a package with one command where Python finds it."""
    info = site / "more-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[marserve.archive_commands]\n{command} = {module}:command\n"
    )
    if code is not None:
        (site / f"{module}.py").write_text(code)


def test_the_help_names_further_commands(archive_model: Run) -> None:
    shown = " ".join(archive_model("--help").stdout.split())
    names = shown.partition("Further commands, each with a --help of its own: ")[2].strip(".")

    assert {"benchmark", "export", "optimize"} <= {*names.split(", ")}


def test_a_further_command_has_a_help_of_its_own(archive_model: Run) -> None:
    shown = archive_model("optimize", "--help")

    assert shown.returncode == 0
    assert "archive-model optimize" in shown.stdout
    assert "--tolerance" in shown.stdout


def test_a_package_brings_a_command(archive_model: Run, tmp_path: Path) -> None:
    code = "import click\n\n@click.command()\ndef command():\n    click.echo('shone')\n"
    install(tmp_path, "polish", "polishing", code)
    done = archive_model("polish", PYTHONPATH=str(tmp_path))

    assert ("shone\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_a_command_whose_package_is_missing_says_so(archive_model: Run, tmp_path: Path) -> None:
    install(tmp_path, "polish", "polishing", None)
    done = archive_model("polish", PYTHONPATH=str(tmp_path))

    assert done.returncode == 1
    assert "error: archive-model polish cannot be loaded from polishing:command" in done.stderr
    assert "No module named 'polishing'" in done.stderr


def test_a_command_that_there_is_not_is_wrong_usage(archive_model: Run) -> None:
    assert 2 == archive_model("polish").returncode
