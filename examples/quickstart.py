"""KERMIT in five minutes: one model that translates, infills, completes, samples, scores, embeds and shows its rounds.

python examples/quickstart.py
python examples/quickstart.py --model runs/multi30k/joint --picture decode.svg
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from kermit import DecodingSettings, Factorization, Kermit, Ranking, Sampling, Strategy
from kermit.decoding import strategies_of
from kermit.rendering import Layout


def title(text):
    print(f"\n== {text} ==")


def main():
    parser = argparse.ArgumentParser(description="A tour of KERMIT.")
    parser.add_argument("--model", type=Path, help="folder of a model; the bundled one by default")
    parser.add_argument("--picture", type=Path, help="SVG file for the insertion tree; needs matplotlib")
    parser.add_argument("--max-tokens", type=int, default=60, help="maximum number of tokens to generate per text")
    options = parser.parse_args()

    # Load once, then pass lists of texts. Each result has its texts, rounds, tokens and log-probability.
    kermit = Kermit.from_pretrained(options.model)
    english, german = kermit.languages
    in_order = strategies_of(kermit.info)[0] is Strategy.LEFT_TO_RIGHT  # the model's own strategy
    best = DecodingSettings(max_tokens=options.max_tokens, beams=4 if in_order else 1)
    drawn = DecodingSettings(sampling=Sampling(temperature=0.7, top_p=0.9), max_tokens=options.max_tokens)

    title("Translate: the first sentences of a list that was fixed before training")
    lines = (Path(__file__).parent / "sentences.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")][:4]
    for found in kermit.translate([source for source, _ in pairs], to=german, settings=best):
        print(f"{found.x}  |  {found.y}")
    for found in kermit.translate([target for _, target in pairs], to=english, settings=best):
        print(f"{found.y}  |  {found.x}")

    title("Translate in parallel: tokens are inserted at every open slot at once")
    sentence = "A man rides a red bike."
    parallel = DecodingSettings(strategy=Strategy.PARALLEL, max_tokens=options.max_tokens)
    [there] = kermit.translate([sentence], to=german, settings=parallel, trace=True)
    print(f"{there.y}  ({there.tokens} tokens in {there.rounds} rounds)")

    title("Infill: the given text is kept word for word")
    blanked = "A man ____ a red ____."
    # of several fills, keep the one that makes the whole text likeliest; this needs the left-to-right order
    ranked = replace(drawn, candidates=8, ranking=Ranking.WHOLE_TEXT) if in_order else drawn
    for filled in kermit.infill([blanked] * 3, settings=ranked, seeds=range(3)):
        print(filled.x)
        before, between, after = blanked.split(" ____")
        assert filled.x.startswith(before) and between in filled.x and filled.x.endswith(after)  # noqa: PT018

    title("Infill one side of a pair, given the other")
    [helped] = kermit.infill(["A man rides ____ bike."], ["Ein Mann fährt ein rotes Fahrrad."], settings=best)
    print(helped.x)

    title("Complete a pair from fragments on both sides")
    [completed] = kermit.complete(["A man ..."], ["... Fahrrad."], settings=drawn, seeds=[0])
    print(f"{completed.x}  |  {completed.y}")

    title("Sample pairs from scratch, or one language only")
    for pair in kermit.sample(2, settings=drawn):
        print(f"{pair.x}  |  {pair.y}")
    [alone] = kermit.sample(1, segment=german, settings=drawn)
    print(alone.y)

    title("Score: how likely is a translation, in nats?")
    for candidate in ("Ein Mann fährt ein rotes Fahrrad.", "Zwei Hunde spielen."):
        way = Factorization.Y_GIVEN_X
        [score] = kermit.score([sentence], [candidate], factorization=way, orders=8)
        print(f"{score.log_prob:8.2f} ± {score.standard_error:.2f}  {candidate}")

    title("Embed: texts as vectors")
    vectors = kermit.embed([sentence, "A woman rides a blue bike.", "Two dogs play in the snow."])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    print("cosine to the first:", *(f"{cosine:.3f}" for cosine in vectors @ vectors[0]))

    title("Trace: the rounds of the parallel translation")
    trace = kermit.readable(there.trace)
    for line in trace.terminal_lines(colour=False):
        print(line.plain)
    if options.picture is not None:
        options.picture.write_text(trace.svg(Layout.TREE), encoding="utf-8")
        print(f"as a tree: {options.picture}")


if __name__ == "__main__":
    main()
