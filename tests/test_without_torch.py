"""Everything except training works in a process that has neither torch nor transformers."""

import subprocess
import sys
from pathlib import Path

from kermit.loading import bundled_model

PROGRAM = '''
import sys


class Missing:
    """Makes libraries look as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "safetensors", "accelerate", "datasets"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
try:
    import torch
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the blocker does not work")

from pathlib import Path

import numpy as np

import kermit
from kermit import BalancedTreePrior, DecodingSettings, GenerationObjective, Kermit, Sampling, SlotObjective, Strategy
from kermit.canvas import SpecialTokens
from kermit.canvas.blank_room import BlankRoom
from kermit.engines import Answer, ModelInfo
from kermit.text.tokenizer import read_tokenizer

SPECIALS = SpecialTokens(cls_id=1, sep_id=2, pad_id=0, end_of_slot_id=4, others=frozenset({3}))
VOCABULARY = 8000


class Hashed:
    """Says something about every slot, by its neighbours and its row's length."""

    caches = False

    def __init__(self, cached_context):
        orders = frozenset({"balanced_tree", "left_to_right"})
        self.info = ModelInfo(
            SPECIALS, VOCABULARY, 3, orders=orders, cached_context=cached_context, blank_id=3, blank_room=BlankRoom(4),
            languages=("en", "de"), factorizations=frozenset({"joint"}),
        )

    def ask(self, rows, asked):
        tokens, length = rows.token_ids.ravel(), rows.token_ids.shape[1]
        state = tokens[asked.left] * 31 + tokens[asked.right] * 17 + length
        content = np.sin(state[:, None] * 0.37 + np.arange(VOCABULARY)) .astype(np.float32) * 4
        content[:, :4] = -np.inf
        content[:, 4] += 9
        content -= np.log(np.exp(content).sum(1, keepdims=True))
        return Answer.of(content, asked, end_id=4)

    def hidden(self, rows):
        return np.stack([rows.token_ids, rows.segment_ids, rows.positions], 2).astype(np.float32)


tokenizer = read_tokenizer(Path(sys.argv[1]))
for cached_context in (False, True):
    model = Kermit(Hashed(cached_context), tokenizer)
    how = DecodingSettings(max_tokens=6)
    drawn = DecodingSettings(max_tokens=6, sampling=Sampling(1.0, 5))
    for settings in (how, drawn, DecodingSettings(max_tokens=6, candidates=3)):
        [found] = model.translate(["A man rides a bike."], "de", settings=settings)
        assert found.x == "A man rides a bike."
    [filled] = model.infill(["A man ____ bike."], settings=how, trace=True)
    assert filled.x.startswith("A man") and filled.x.endswith("bike."), filled
    assert model.readable(filled.trace).to_json()
    assert len(model.sample(2, settings=how)) == 2
    assert model.complete(["man ..."], ["Mann"], settings=how)
    assert model.score(["A"], ["Ein"], method="exact")[0].log_prob < 0
    assert model.score(["A man"], ["Ein"], orders=2)[0].log_prob < 0
    assert model.embed(["A man"], ["Ein"]).shape == (1, 3)
[one] = model.translate(["A man"], "de", settings=DecodingSettings(Strategy.LEFT_TO_RIGHT, max_tokens=4))
assert model.score(["A man"], ["Ein"], method="left_to_right")[0].log_prob < 0
assert GenerationObjective(BalancedTreePrior()) and SlotObjective(BalancedTreePrior())
assert not any(name.partition(".")[0] in ("torch", "transformers") for name in sys.modules)
print("ok")
'''


def test_decoding_scoring_and_embedding_need_neither_torch_nor_transformers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py"), str(bundled_model())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
