"""Answer the cloze question of the paper's Figure 5 with your models.

In 1998 the Tinside Pool was named a listed building. KERMIT fills the gap by insertion, a masked language model by a
beam search over masks, a causal one by sampling. KERMIT also runs with a minimum of one token, which the others always
insert; those also run with the length of the answer given. A model is a folder, a name on the Hub, or, for --causal-lm,
a .gguf file.

    python examples/figure5.py --kermit DIR --masked-lm bert-large-uncased --causal-lm gpt2-medium

In the paper GPT-2 answers "Plymouth" (given the length, "A listed building"), BERT "plymouth" (": the pool"), and
KERMIT "the tinside pool". The passage is from Wikipedia, by way of SQuAD (CC BY-SA 4.0).
"""

import argparse
import sys

from rich.console import Console
from rich.table import Column, Table

from kermit import DecodingSettings, Strategy
from kermit.decoding import Constraints, strategies_of
from kermit.engines.torch_engine import model_info
from kermit.errors import KermitError
from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.tasks.cloze.instances import ClozeInstance
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.models import load_causal_lm, load_insertion_model, load_masked_lm
from kermit.tasks.cloze.squad_metrics import exact_match, f1

PASSAGE = (
    "Plymouth has a post-war shopping area in the city centre with substantial pedestrianisation. At the west "
    "end of the zone inside a grade II listed building is the Pannier Market that was completed in 1959 – "  # noqa: RUF001
    'pannier meaning "basket" from French, so it translates as "basket market". In terms of retail '
    "floorspace, Plymouth is ranked in the top five in the South West, and 29th nationally. Plymouth was one "
    "of the first ten British cities to trial the new Business Improvement District initiative. The Tinside "
    "Pool is situated at the foot of the Hoe and became a grade II listed building in 1998 before being "
    "restored to its 1930s look for £3.4 million."
)
QUESTION = "What notable location was named a grade II listed building in 1998?"
CLOZE = "____ was named a grade II listed building in 1998."
ANSWER = "Tinside Pool"


def systems(options):
    """Yield the systems with their names."""
    if options.kermit:
        loaded = load_insertion_model(options.kermit)
        can = strategies_of(model_info(loaded[0]))
        for strategy in (one for one in Strategy if one in can):
            for least in (0, 1):
                how = DecodingSettings(strategy, max_tokens=32, constraints=Constraints(min_tokens_per_blank=least))
                yield f"KERMIT, {strategy}" + ", at least one token" * least, InsertionSystem(*loaded, how)
    if options.masked_lm:
        loaded = load_masked_lm(options.masked_lm)
        for oracle in (False, True):
            yield "masked LM" + ", oracle length" * oracle, MaskedLMSystem(*loaded, oracle_length=oracle)
    if options.causal_lm:
        loaded = load_causal_lm(options.causal_lm)
        for oracle in (False, True):
            yield "causal LM" + ", oracle length" * oracle, CausalLMSystem(*loaded, oracle_length=oracle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in ("--kermit", "--masked-lm", "--causal-lm"):
        parser.add_argument(kind, metavar="MODEL")
    options = parser.parse_args()
    if not any(vars(options).values()):
        parser.error("give at least one model")
    console = Console(width=120)
    console.print(f"{PASSAGE} [bold]{QUESTION} {CLOZE}[/bold]\n", highlight=False)
    instance = ClozeInstance.from_text(PASSAGE, QUESTION, CLOZE, [ANSWER])
    table = Table(Column("system", no_wrap=True), "answer", "exact match", "F1", "forward passes", "log-probability")
    for name, system in systems(options):
        layout = system.lay_out(instance)
        if layout is None:
            table.add_row(name, "(too long for the model)")
            continue
        [answer] = system.answer([layout])
        table.add_row(
            name + " (passage cut)" * layout.cut,
            answer.text,
            "yes" if exact_match(answer.text, instance.answers) else "no",
            f"{f1(answer.text, instance.answers):.2f}",
            str(answer.forward_passes),
            f"{answer.score:.2f}",
        )
    table.add_row("correct", ANSWER)
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    except KermitError as error:
        sys.exit(f"error: {error}")
