"""Other architectures and tokenizers than the tiny BERT, GPT-2 and byte-level BPE of the other tests."""

import re

import pytest
import torch
from cloze_models import INSTANCES, PASSAGE, bert_decoder, kermit, masked_lm, tokenizer
from insertion_models import trunk_config
from tiny import shape
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    LlamaConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from kermit import DecodingSettings
from kermit.families.language_model import segment_inputs
from kermit.loading import position_limit
from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
from kermit.tasks.cloze.insertion_system import InsertionSystem
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.system import spelled
from kermit.text.tokenizer import encode_texts

WORDS = tokenizer()


def wordpiece():
    """An uncased WordPiece tokenizer as BERT's: whole words of the instances, and their letters as continuations."""
    text = " ".join(f"{item.passage} {item.question} {item.left} {item.right}" for item in INSTANCES).lower()
    split = pre_tokenizers.BertPreTokenizer()
    whole = sorted({word for word, _ in split.pre_tokenize_str(text)} - {"austria", "slept"})
    letters = sorted({letter for letter in text if not letter.isspace()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *whole, *(set(letters) - set(whole))]
    vocabulary = {token: number for number, token in enumerate([*tokens, *(f"##{letter}" for letter in letters)])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer, made.decoder = normalizers.BertNormalizer(), split, decoders.WordPiece()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **{f"{name}_token": token for name, token in names.items()})


def sentencepiece(kind):
    """A tokenizer of whole words with their marker and of single characters, as SentencePiece's are converted."""
    text = " ".join(f"{item.passage} {item.question} {item.left} {item.right}" for item in INSTANCES)
    whole = sorted(f"▁{word}" for word in set(re.findall(r"\w+", text)))
    letters = sorted({letter for letter in text if not letter.isspace()})
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<mask>", 0.0), ("▁", -4.0), ("an", -3.0)]
    pieces += [(word, -2.0) for word in whole] + [(letter, -3.0) for letter in letters]
    made = Tokenizer(models.Unigram(pieces, unk_id=0))
    match kind:
        case "always" | "first":
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind)
        case "each word":  # XLM-R's
            parts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
            made.pre_tokenizer = pre_tokenizers.Sequence(parts)
        case "normalised":  # Llama 2's
            made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Metaspace()
    names = {"unk": "<unk>", "pad": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **{f"{name}_token": token for name, token in names.items()})


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "mpnet"])
def test_logits_at_the_gap_are_those_of_the_whole_output(family):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(trunk_config(family, vocab_size=len(WORDS), max_positions=256))
    system = MaskedLMSystem(model, WORDS, beams=2)
    layouts = [system.lay_out(instance) for instance in INSTANCES[2:4]]
    inputs = system.inputs(layouts, 3)
    with torch.inference_mode():
        found = system._logits(inputs.token_ids, inputs.valid, inputs.segment_ids, inputs.gap)
        segments = segment_inputs(model, inputs.segment_ids)
        whole = model(input_ids=inputs.token_ids, attention_mask=inputs.valid.long(), **segments).logits
    for row, places in enumerate(inputs.gap.tolist()):
        assert torch.allclose(found[row], whole[row, places], atol=1e-4)
    assert [answer.tokens > 0 for answer in system.answer(layouts)] == [True, True]


def test_a_model_that_counts_positions_from_its_padding_has_fewer_of_them():
    sizes = shape(positions=90)
    config = RobertaConfig(vocab_size=len(WORDS), pad_token_id=WORDS.pad_token_id, is_decoder=True, **sizes)
    masked = AutoModelForMaskedLM.from_config(config)
    assert position_limit(masked) == 89 - WORDS.pad_token_id
    system = CausalLMSystem(AutoModelForCausalLM.from_config(config), WORDS, samples=2, continuation_tokens=4)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    assert max(len(system.opening) + len(layout) + 4 for layout in layouts) <= system.limit
    assert len(system.answer(layouts)) == len(layouts)


def test_a_causal_model_with_rotary_positions_scores_in_a_batch_as_alone():
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(WORDS), num_key_value_heads=1, **shape(layers=2, positions=256))
    system = CausalLMSystem(AutoModelForCausalLM.from_config(config), WORDS, samples=3, continuation_tokens=3)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    alone = [answer for layout in layouts for answer in system.answer([layout])]
    assert [answer.text for answer in system.answer(layouts)] == [answer.text for answer in alone]


@pytest.mark.parametrize("kind", ["always", "first", "each word", "normalised"])
def test_sentencepiece_puts_no_marker_before_later_parts(kind):
    words = sentencepiece(kind)
    system = MaskedLMSystem(masked_lm(words, positions=200), words, beams=2)
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    assert [words.convert_ids_to_tokens(layout.after) for layout in layouts] == [
        ["▁of", "▁land", "."],
        ["▁held", "▁the", "▁rest", "."],
        ["."],
        [")", "."],
        [],
        [",", "▁they", "▁say", "."],
    ]
    # "65%" is ▁65 and %; "an old empire" touches its bracket, and is an, ▁old and ▁empire
    assert [layout.gap_length for layout in layouts] == [2, 1, 4, 3, 4, 1]
    assert words.convert_ids_to_tokens(layouts[0].first[:2]) == ["▁Prussia", "▁controlled"]
    assert words.convert_ids_to_tokens(layouts[1].before[-4:]) == ["▁held", "▁the", "▁rest", "?"]
    assert len(system.answer(layouts)) == len(layouts)


@pytest.mark.parametrize("make", [tokenizer, wordpiece])
def test_byte_level_and_wordpiece_encode_a_part_the_same_in_context_and_alone(make):
    words = make()
    system = MaskedLMSystem(masked_lm(words, positions=200), words, beams=2)
    for instance in INSTANCES:
        layout = system.lay_out(instance)
        gap = instance.gap if instance.joined else f" {instance.gap}"
        after, held = encode_texts(words, [instance.right, gap])
        assert (list(layout.after), layout.gap_length) == (after, len(held))


@pytest.mark.parametrize("kind", ["kermit", "masked-lm", "causal-lm"])
def test_wordpiece_answers_never_start_inside_a_word(kind):
    words = wordpiece()
    match kind:
        case "kermit":
            decoding = DecodingSettings(max_tokens=4, termination_penalty=20)
            system = InsertionSystem(kermit(_with_end_of_slot(words), room=160), words, decoding)
        case "masked-lm":
            system = MaskedLMSystem(masked_lm(words, positions=200), words, beams=2)
        case "causal-lm":
            system = CausalLMSystem(bert_decoder(words, positions=200), words, samples=4, continuation_tokens=4)
            assert system.opening == [words.cls_token_id]
    layouts = [system.lay_out(instance) for instance in INSTANCES]
    # "Austria" is spelled out: a and six continuations
    assert layouts[1].gap_length == 7
    assert words.convert_ids_to_tokens(layouts[1].after) == ["held", "the", "rest", "."]
    answers = system.answer(layouts)
    apart = [answer.text for answer, layout in zip(answers, layouts, strict=True) if not layout.joined]
    assert [text for text in apart if not text or text.startswith("##")] == []


@pytest.mark.parametrize(
    ("tokens", "spelling"),
    [("controlled 65%", "controlled 65%"), ("THE REST OF IT!", "the rest of it!"), ("65% held", "65 % held")],
)
def test_an_answer_that_occurs_in_the_passage_is_spelled_as_there(tokens, spelling):
    words = wordpiece()
    assert spelled(words, words.backend_tokenizer.encode(tokens, add_special_tokens=False).ids, PASSAGE) == spelling
    assert spelled(words, [], PASSAGE) == ""


def test_byte_level_answers_keep_their_spelling():
    for text in (" 65% of the land", " Austria", " is Austria"):
        assert spelled(WORDS, WORDS.backend_tokenizer.encode(text).ids, PASSAGE) == text.strip()


def _with_end_of_slot(words):
    words.add_special_tokens({"extra_special_tokens": ["[EOSLOT]"]})
    return words
