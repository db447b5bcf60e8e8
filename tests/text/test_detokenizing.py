"""Between strings and tokens, with a tokenizer that keeps neither spaces nor capitals."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kermit.canvas.blanks import as_blanks
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.text.detokenizing import Detokenizer
from kermit.text.tokenizer import encode_texts

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
PARTS = ["##believ", "##able", "##ing", ".", ",", "-", "(", ")"]
WORDS = [*SPECIALS, "a", "man", "dog", "un", "known", "play", "able", "old", *PARTS]


@pytest.fixture(scope="module")
def detokenizer() -> Detokenizer:
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **special)
    return Detokenizer(tokenizer, len(tokenizer))


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
def test_inserted_tokens_are_spelled_as_in_their_context(
    detokenizer: Detokenizer, text: str, tokens: str, filled: str
) -> None:
    assert detokenizer.fill(text, *placed(tokens)) == filled


def test_a_token_alone_has_a_space_where_it_begins_a_word(detokenizer: Detokenizer) -> None:
    assert [detokenizer.piece(WORDS.index(word)) for word in ("man", "play", "##ing", ".")] == [
        " man",
        " play",
        "ing",
        ".",
    ]
    byte_level = train_tokenizer(["a man playing ."] * 4, 290)
    pieces = map(Detokenizer(byte_level, 290).piece, encode_texts(byte_level, ["a man playing."])[0])
    assert "".join(pieces) == "a man playing."


@pytest.mark.parametrize(
    ("fragment", "blanked"),
    [
        ("A man ...", "A man ____"),
        ("A man...", "A man ____"),
        ("A man … hat …", "A man ____ hat ____"),
        ("...man", "____ man"),
        ("... , he said", "____ , he said"),
        ("A man....", "A man ____."),
        ('("... man")', '("____ man")'),
        ("A ____ man", "A ____ man"),
        ("un____able ...", "un____able ____"),
        ("A man", "A man"),
        (" ", "____"),
        ("", "____"),
    ],
)
def test_open_places_are_blanks_separated_from_words(fragment: str, blanked: str) -> None:
    assert as_blanks(fragment) == blanked
