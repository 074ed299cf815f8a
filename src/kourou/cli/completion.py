"""`kourou completion`: what bash, zsh and fish need to complete commands."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what SHELL needs; put it into its start-up file: eval "$(kourou completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows these three"
    from kourou.cli.main import group

    click.echo(found(group(), {}, "kourou", COMPLETE_VARIABLE).source())


COMPLETE_VARIABLE = "_KOUROU_COMPLETE"
