"""Read the title and the first paragraph of a model's card."""

from __future__ import annotations

import re
from pathlib import Path

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TITLE = re.compile(r"^# +(.+?) *$", re.MULTILINE)
_MOST = 500


def read_card(folder: Path) -> tuple[str | None, str | None]:
    """Read the title and the first paragraph of the model's README.md; None for whatever is missing."""
    try:
        text = _FRONT_MATTER.sub("", (folder / "README.md").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None, None
    title = _TITLE.search(text)
    rest = text[title.end() :] if title else text
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", rest)]
    prose = next((part for part in paragraphs if part and part[0].isalnum()), None)
    return title[1] if title else None, None if prose is None else _plain(prose)[:_MOST]


def _plain(text: str) -> str:
    """Return a line of Markdown without its markup."""
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text).replace("`", "").replace("**", "")
