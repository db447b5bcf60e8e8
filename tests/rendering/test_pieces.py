"""Tokens of any tokenizer read as parts of a text: with a space where they begin a word."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, PreTrainedTokenizerFast

from kermit import Kermit, KermitConfig, KermitForInsertion
from kermit.data.tokenizer import train_tokenizer
from kermit.modeling import special_token_settings


def pipeline(tokenizer):
    settings = special_token_settings(tokenizer)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    trunk = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)
    return Kermit(KermitForInsertion(KermitConfig(trunk_config=trunk, **settings)), tokenizer)


def wordpiece():
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "a", "man", "play", "##ing", "."]
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **special)


def read(kermit, text):
    (result,) = kermit.infill([text + "____"], trace=True)
    return kermit.readable(result.trace).sides()[0]


def test_parts_of_words_join_and_words_stand_apart():
    for tokenizer in (wordpiece(), train_tokenizer(["a man playing ."] * 4, 290)):
        assert read(pipeline(tokenizer), "a man playing.").startswith("a man playing.")
