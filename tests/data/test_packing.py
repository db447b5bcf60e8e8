"""Packed pairs, compared with BERT's sentence-by-sentence algorithm with the same random numbers."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kermit.data.articles import ArticleSource
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.data.packing import PackedText, Pairs, pack
from kermit.data.sentences import EncodedSentences, encode_articles
from kermit.errors import DataError
from kermit.text.tokenizer import decode_ids


class Stream:
    """Tokens whose ids are their places in the stream."""

    def __getitem__(self, places: slice) -> dict[str, list[int]]:
        return {"token": list(range(places.start, places.stop))}


def sentences_of(articles: list[list[int]]) -> EncodedSentences:
    """Articles given by the lengths of their sentences."""
    lengths = [length for article in articles for length in article]
    opens = [number == 0 for article in articles for number in range(len(article))]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EncodedSentences(Stream(), starts, np.array(opens), np.zeros(len(lengths), dtype=np.int64))


def chance(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def bert_pairs(articles: list[list[int]], seed: int, room: int, short_rate: float) -> list[tuple[list[int], list[int]]]:
    """Tokens of x and tokens of y, built by walking over the sentences."""
    place, documents = 0, []
    for article in articles:
        document = []
        for length in article:
            document.append(list(range(place, place + length)))
            place += length
        documents.append(document)
    drawn = chance(seed).random((3, sum(map(len, articles))))
    first_sentence = np.cumsum([0, *map(len, articles)])
    made = []
    for number, document in enumerate(documents):
        i = 0
        while i < len(document):
            short, size, where = drawn[:, first_sentence[number] + i]
            target = 2 + int(size * (room - 1)) if short < short_rate else room
            chunk, total = [], 0
            while i < len(document) and total < target:
                chunk.append(document[i])
                total += len(document[i])
                i += 1
            end = 1 + int(where * (len(chunk) - 1)) if len(chunk) > 1 else 1
            made.append(
                tuple([token for sentence in side for token in sentence] for side in (chunk[:end], chunk[end:]))
            )
    return made


def cut(x: int, y: int, room: int) -> tuple[int, int]:
    """Take a token from the longer side until there is room, as BERT does."""
    while x + y > room:
        x, y = (x - 1, y) if x > y else (x, y - 1)
    return x, y


articles = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=8), min_size=2, max_size=8)


@given(articles, st.integers(0, 50), st.integers(4, 40), st.sampled_from([0.0, 0.1, 0.8]))
def test_pairs_are_those_that_bert_makes_sentence_by_sentence(
    articles: list[list[int]], seed: int, room: int, short_rate: float
) -> None:
    found = pack(sentences_of(articles), chance(seed), room=room, short_rate=short_rate)
    expected = bert_pairs(articles, seed, room, short_rate)
    assert len(found) == len(expected)
    for row, (x, y) in zip(found.fetch(range(len(found))), expected, strict=True):
        assert (len(row["x"]), len(row["y"])) == cut(len(x), len(y), room)
        for kept, whole in ((row["x"], x), (row["y"], y)):  # the rest is contiguous
            assert not kept or whole[whole.index(kept[0]) :][: len(kept)] == kept


LONG = [[5] * 400] * 5


def test_excess_tokens_are_removed_equally_often_from_front_and_back() -> None:
    found = pack(sentences_of([[30, 30]] * 3000), chance(0), room=40, short_rate=0.0)
    front = found.x_starts - np.arange(3000) * 60
    assert set(found.x_lengths.tolist()) == {20}
    assert front.mean() == pytest.approx(5.0, abs=5 * (10 / 4 / 3000) ** 0.5)  # binomial, 10 tokens
    assert (front.min(), front.max()) >= (0, 8)


def test_one_pair_in_ten_is_deliberately_shorter() -> None:
    found = pack(sentences_of([[1] * 20_000]), chance(3), room=50)
    total = found.x_lengths + found.y_lengths
    assert (total < 50).mean() == pytest.approx(0.1, abs=0.05)
    assert total.min() >= 2


def packed(seed: int = 1, limit: int | None = None) -> PackedText:
    return PackedText(sentences_of(LONG), room=20, short_rate=0.1, seed=seed, limit=limit)


def test_an_epoch_depends_only_on_seed_and_number() -> None:
    def lengths(pairs: Pairs) -> list[int]:
        return pairs.x_lengths.tolist()

    text = packed()
    third = lengths(text.epoch(3))
    assert lengths(text.epoch(4)) != third
    text.epoch(5)
    assert lengths(text.epoch(3)) == third == lengths(packed().epoch(3)), "also after others were asked for"
    assert lengths(packed(seed=2).epoch(3)) != third


def test_fewer_pairs_are_spread_evenly() -> None:
    whole, few = packed().epoch(0), packed(limit=10).epoch(0)
    assert len(few) == 10
    places = np.searchsorted(whole.x_starts, few.x_starts).tolist()
    assert places == [number * len(whole) // 10 for number in range(10)]
    assert len(packed(limit=10**6).epoch(0)) == len(whole)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["One two three. Four five six seven."] * 3, 290)


def test_encoding_keeps_all_text_with_its_articles_and_sources(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("One two. Three.\nFour five.\n\nSix.\n")
    (tmp_path / "b").write_text("Seven " * 30 + "\n")
    sources = [ArticleSource(text=tmp_path / name) for name in "ab"]
    text = encode_articles(sources, tokenizer, max_tokens=12)
    pieces = [
        decode_ids(tokenizer, text.slice(int(start), int(end - start)))
        for start, end in zip(text.starts[:-1], text.starts[1:], strict=True)
    ]
    assert pieces[:4] == ["One two.", " Three.", " Four five.", "Six."]
    assert "".join(pieces[4:]) == ("Seven " * 30).strip()
    assert np.diff(text.starts).max() <= 12
    assert text.opens.tolist() == [True, False, False, True, True, *[False] * (len(pieces) - 5)]
    assert text.sources.tolist() == [0] * 4 + [1] * (len(pieces) - 4)
    assert text.slice(0, 0) == []


def test_an_article_whose_first_sentence_has_no_tokens_starts_with_the_next(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"One.": 0, "Two.": 1, "Three.": 2}))
    backend.normalizer = normalizers.Replace("Nothing.", "")
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "a").write_text("One. Two.\n\nNothing. Three. One.\n")
    text = encode_articles(
        [ArticleSource(text=tmp_path / "a")],
        PreTrainedTokenizerFast(tokenizer_object=backend),
        max_tokens=12,
    )
    assert text.slice(0, 4) == [0, 1, 2, 0]
    assert text.opens.tolist() == [True, False, True, False]


def test_text_without_a_sentence_is_an_error(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n\n")
    with pytest.raises(DataError, match="no valid text"):
        encode_articles([ArticleSource(text=tmp_path / "a")], tokenizer, max_tokens=12)
