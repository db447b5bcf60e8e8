"""The group of all verbs: panels of the help, and options common to all verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from kermit.errors import UsageError

USE, TRAIN, EVALUATE, SERVE = "Use", "Train", "Evaluate", "Serve"
PANELS = (USE, TRAIN, EVALUATE, SERVE)
"""The panels of `kermit --help`, from top to bottom."""

EVERYWHERE = ("debug", "quiet")
"""Options of `kermit` that may also follow a verb."""


class Verbs(TyperGroup):
    """Adds the common options to every verb, and lists verbs by panel."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        shared = [option for option in self.params if option.name in EVERYWHERE]
        for option in shared:
            option.expose_value = False  # handled by their callback, not by the verb's function
        groups: list[Any] = [self]
        while groups:
            for command in groups.pop().commands.values():
                command.params.extend(shared)
                for option in (*command.params, command.get_help_option(typer.Context(command))):
                    if getattr(option, "is_flag", False):
                        option.metavar = ""  # not <bool>: a flag takes no value
                    elif option.param_type_name == "argument":
                        option.display_type_rich = lambda ctx: None  # not <list[str]>
                if hasattr(command, "commands"):
                    groups.append(command)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the options before the verb."""
        with _as_usage_error():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Parse the verb and its options, and run it."""
        with _as_usage_error():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """List the verbs by panel, then by order of registration; groups last."""

        def place(name: str) -> tuple[int, bool]:
            command: Any = self.commands[name]
            panel = command.rich_help_panel
            return PANELS.index(panel) if panel in PANELS else len(PANELS), hasattr(command, "commands")

        return sorted(self.commands, key=place)


@contextmanager
def _as_usage_error() -> Iterator[None]:
    """Turn a wrong command into a UsageError that points to the help."""
    wrong: Any = typer.BadParameter.__base__  # click's UsageError; typer may bundle click
    try:
        yield
    except wrong as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # help, not an error
            raise
        place = "kermit" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
        see = " See" if message.endswith("?") else "; see"
        raise UsageError(f"{message}{see} {place} --help") from error
