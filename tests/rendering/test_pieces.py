"""Tokens of any tokenizer as parts of a text, with a space where they start a word."""

from tiny import bert, kermit_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kermit import Kermit
from kermit.data.joint_tokenizer import train_tokenizer


def pipeline(tokenizer):
    return Kermit(kermit_model(tokenizer, bert(tokenizer, width=8, heads=1, positions=32)), tokenizer)


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


def test_parts_of_words_are_joined_and_words_are_separated():
    for tokenizer in (wordpiece(), train_tokenizer(["a man playing ."] * 4, 290)):
        assert read(pipeline(tokenizer), "a man playing.").startswith("a man playing.")
