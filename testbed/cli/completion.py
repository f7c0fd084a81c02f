"""``testbed completion``: shell completion of commands and options."""

from __future__ import annotations

import click

INSTALLATION = {
    "bash": "echo 'eval \"$(testbed completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(testbed completion zsh)\"' >> ~/.zshrc",
    "fish": "testbed completion fish > ~/.config/fish/completions/testbed.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(INSTALLATION)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL, with instructions for its installation."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "testbed", "_TESTBED_COMPLETE")
    click.echo(f"# To install it: {INSTALLATION[shell]}")
    click.echo("# and open a new shell.")
    click.echo(script.source_template % script.source_vars())
