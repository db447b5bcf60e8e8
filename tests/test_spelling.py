"""Between strings and tokens, with a tokenizer that keeps neither spaces nor capitals."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kermit.modeling import specials_of
from kermit.text.spelling import Speller

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
PARTS = ["##believ", "##able", "##ing", ".", ",", "-", "(", ")"]
WORDS = [*SPECIALS, "a", "man", "dog", "un", "known", "play", "able", "old", *PARTS]


@pytest.fixture(scope="module")
def speller() -> Speller:
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **special)
    return Speller(tokenizer, specials_of(tokenizer), len(tokenizer))


def placed(tokens: str) -> tuple[list[int], list[bool]]:
    """The ids of tokens, and whether each is inserted: those with a +."""
    pairs = [(WORDS.index(token.removeprefix("+")), token.startswith("+")) for token in tokens.split()]
    return [token_id for token_id, _ in pairs], [new for _, new in pairs]


@pytest.mark.parametrize(
    ("text", "tokens", "filled"),
    [
        ("Un____able", "un +##believ able", "Unbelievable"),
        ("Un____able", "un +##believ +##able able", "Unbelievableable"),
        ("A man____.", "a man +play +##ing .", "A man playing."),  # a new word, though the blank touches the old one
        ("Un-____ man", "un - +known man", "Un-known man"),
        ("A ____ man", "a +old man", "A old man"),
        ("A MAN ____ (____)", "a man +play +##ing ( +a +dog )", "A MAN playing (a dog)"),
        ("\t____ ____ man\n", "+a +dog man", "\ta dog man\n"),
    ],
)
def test_what_is_inserted_is_spelled_as_it_reads_where_it_stands(
    speller: Speller, text: str, tokens: str, filled: str
) -> None:
    assert speller.fill(text, *placed(tokens)) == filled


@pytest.mark.parametrize(
    ("text", "tokens", "completed"),
    [
        ("A  Man", "a man", "A  Man"),
        ("A  Man", "a +old man +, +play +##ing", "A old  Man, playing"),
        ("A Man", "+dog +, a man", "dog, A Man"),
        ("Zebra ____ Man.", "[UNK] +old man .", "Zebra old Man."),
        ("MAN", "+a man", "a MAN"),
        ("____", "+a +man", "a man"),
        ("", "", ""),
    ],
)
def test_a_completed_fragment_keeps_its_words_as_they_were_written(
    speller: Speller, text: str, tokens: str, completed: str
) -> None:
    assert speller.complete(text, *placed(tokens)) == completed
