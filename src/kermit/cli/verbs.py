"""The verbs as one group: the panels of its help, and the options that every verb has."""

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
"""The options of `kermit` that may also stand behind a verb."""


class Verbs(TyperGroup):
    """Shares the options that are good everywhere with every verb, and lists the verbs by panel."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        shared = [option for option in self.params if option.name in EVERYWHERE]
        for option in shared:
            option.expose_value = False  # heard by their callback, no business of the verb's function
        groups: list[Any] = [self]
        while groups:
            for command in groups.pop().commands.values():
                command.params.extend(shared)
                if hasattr(command, "commands"):
                    groups.append(command)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Read the options before the verb."""
        with _told_in_a_line():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Read the verb and its options, and run it."""
        with _told_in_a_line():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the verbs, in the order of the panels and, within one, of registration; groups last."""

        def place(name: str) -> tuple[int, bool]:
            command: Any = self.commands[name]
            panel = command.rich_help_panel
            return PANELS.index(panel) if panel in PANELS else len(PANELS), hasattr(command, "commands")

        return sorted(self.commands, key=place)


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    """Tell of a wrong command as of everything that a user can mend, and where help is."""
    wrong: Any = typer.BadParameter.__base__  # click's UsageError, wherever this typer keeps click
    try:
        yield
    except wrong as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which is help, and no error
            raise
        place = "kermit" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().split()).rstrip(".")
        raise UsageError(f"{message}; see {place} --help") from error
