"""Run every inference command in an environment without torch. `make light` runs this file with the light install."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "transformers", "datasets", "sacrebleu", "matplotlib", "fastapi")
VERBS = {
    "translate": ["--to", "de", "Two dogs are playing in the snow."],
    "infill": ["A ____ is riding a bike."],
    "complete": ["--x", "A man ...", "--y", "... Fahrrad."],
    "sample": ["--count", "2"],
    "score": ["A dog runs."],
    "info": [],
    "trace": ["--to", "de", "A dog runs."],
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kermit", *words], capture_output=True, text=True, check=False)


def main() -> None:
    found = [name for name in HEAVY if importlib.util.find_spec(name) is not None]
    assert not found, f"this is not the light install: {found}"
    for verb, words in VERBS.items():
        result = run(verb, *words)
        assert result.returncode == 0, f"kermit {verb}: {result.stderr}"
        assert result.stdout.strip(), f"kermit {verb} printed nothing"
        print(f"kermit {verb}: {result.stdout.strip().splitlines()[0]}")
    answer = json.loads(run("translate", "--to", "en", "--json", "Ein Hund schläft.").stdout)
    assert answer["text"], answer
    for words, extra in ((["train", "recipe.yaml", "--output", "run"], "train"), (["serve"], "serve")):
        result = run(*words)
        assert result.returncode == 2, result
        assert f"kermit-insertion[{extra}]" in result.stderr, result.stderr
    tour = Path(__file__).parent.parent / "examples" / "quickstart.py"
    subprocess.run([sys.executable, str(tour)], check=True)


if __name__ == "__main__":
    main()
