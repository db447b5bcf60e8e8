"""The verbs as one group: the panels of its help, and the options that every verb has."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

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

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the verbs, in the order of the panels and, within one, of registration; groups last."""

        def place(name: str) -> tuple[int, bool]:
            command: Any = self.commands[name]
            panel = command.rich_help_panel
            return PANELS.index(panel) if panel in PANELS else len(PANELS), hasattr(command, "commands")

        return sorted(self.commands, key=place)
