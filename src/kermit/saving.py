"""Save a model with its tokenizer and a model card, to a folder or the Hub."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kermit.errors import ModelError
from kermit.provenance import apply_umask, partial
from kermit.text.languages import language_name

if TYPE_CHECKING:
    from kermit.text_model import TextModel

CARD = "README.md"

_CARD_TEXT = """\
---
{front}tags:
- kermit
- insertion
---

# {name}

{about}

```python
from kermit import Kermit

model = Kermit.from_pretrained("{name}")
```
"""


def save(kermit: TextModel, folder: Path) -> None:
    """Write a model to a folder; an existing card is kept."""
    if kermit.folder is not None and folder.exists() and folder.samefile(kermit.folder):
        return
    scratch = partial(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    _write(kermit, scratch)
    if not (folder / CARD).exists() and not (scratch / CARD).exists():
        (scratch / CARD).write_text(model_card(kermit, folder.name), encoding="utf-8")
    apply_umask(scratch)
    for file in scratch.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
    shutil.rmtree(scratch)


def _write(kermit: TextModel, folder: Path) -> None:
    model = _torch_model(kermit)
    if model is not None:
        model.save_pretrained(folder)
    elif kermit.folder is not None:
        others = shutil.ignore_patterns("checkpoint-*", "runs", "best")  # of a training's output
        shutil.copytree(kermit.folder, folder, ignore=others, dirs_exist_ok=True)
    if hasattr(kermit.tokenizer, "save_pretrained"):
        kermit.tokenizer.save_pretrained(folder)
    elif kermit.folder is not None:
        for file in kermit.folder.glob("*token*.json"):
            shutil.copyfile(file, folder / file.name)
    else:
        kermit.tokenizer.save(str(folder / "tokenizer.json"))  # type: ignore[union-attr]


def push(kermit: TextModel, name: str, **settings: Any) -> None:
    """Upload a model that torch runs to the Hub; `settings` are those of transformers' `push_to_hub`."""
    model, tokenizer = _torch_model(kermit), kermit.tokenizer
    if model is None:
        raise ModelError("only a model that torch runs can be pushed; load it with engine='torch'")
    if not hasattr(tokenizer, "push_to_hub"):
        from kermit.data.joint_tokenizer import load_tokenizer

        assert kermit.folder is not None
        tokenizer = load_tokenizer(kermit.folder)
    for part in (model, tokenizer):
        part.push_to_hub(name, **settings)


def _torch_model(kermit: TextModel) -> Any:
    return getattr(kermit.searcher or kermit.engine, "model", None)


def model_card(kermit: TextModel, name: str) -> str:
    """Build a model card."""
    x, y = kermit.languages
    named = (x, y) != ("x", "y")
    size = "" if kermit.info.parameters is None else f" with {kermit.info.parameters:,} parameters"
    texts = f"{language_name(x)} and {language_name(y)} texts" if named else "texts"
    trained = f", trained for {', '.join(sorted(kermit.factorizations))}" if kermit.factorizations else ""
    orders = f" Insertion orders: {', '.join(sorted(kermit.info.orders))}." if kermit.info.orders else ""
    front = f"language:\n- {x}\n- {y}\n" if named else ""
    about = f"A model of type {kermit.model_type}{size} of {texts}{trained}.{orders}"
    return _CARD_TEXT.format(front=front, name=name, about=about)
