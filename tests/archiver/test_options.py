from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from marserve.archiver.options import CompatCommand


@click.command(cls=CompatCommand, many={"--models"})
@click.option("--models", multiple=True)
@click.option("--model-store")
@click.option("--disable-token-auth", "--dt", is_flag=True)
@click.option("--version", "-v")
@click.option("--force", "-f", is_flag=True)
@click.argument("rest", nargs=-1)
def program(**values: object) -> None:
    click.echo(repr(values))


def run(*args: str) -> Result:
    return CliRunner().invoke(program, list(args))


def values(*args: str) -> dict[str, object]:
    result = run(*args)

    assert result.exit_code == 0, result.output
    return dict(eval(result.output))


def test_a_unique_beginning_stands_for_the_long_option() -> None:
    assert values("--disable-token")["disable_token_auth"] is True
    assert values("--model-s", "x")["model_store"] == "x"
    assert values("--model-s=x=y")["model_store"] == "x=y"
    assert values("--fo")["force"] is True


def test_an_ambiguous_beginning_is_refused_with_the_candidates() -> None:
    result = run("--mod", "x")

    assert result.exit_code == 2
    assert "--mod could match --model-store, --models" in result.output


def test_an_exact_name_is_never_ambiguous() -> None:
    assert values("--models", "x")["models"] == ("x",)


def test_an_option_takes_values_up_to_the_next_option() -> None:
    found = values("--models", "a=a.mar", "b.mar", "-1", "--model-store", "store", "-f")

    assert found["models"] == ("a=a.mar", "b.mar", "-1")
    assert found["model_store"] == "store"
    assert found["force"] is True


@pytest.mark.parametrize("args", [["--models"], ["--models", "--force"], ["--model-store", "-f"]])
def test_a_forgotten_value_is_wrong_usage(args: list[str]) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert "requires" in result.output


def test_short_options_keep_their_forms() -> None:
    assert values("-v", "1.0")["version"] == "1.0"
    assert values("-v2")["version"] == "2"
    assert values("-fv", "3")["force"] is True


def test_after_two_dashes_nothing_is_an_option() -> None:
    assert values("-f", "--", "--models", "-f")["rest"] == ("--models", "-f")


def test_an_unknown_option_is_wrong_usage() -> None:
    assert run("--colour").exit_code == 2


def test_help_has_both_names() -> None:
    assert run("-h").output == run("--help").output
