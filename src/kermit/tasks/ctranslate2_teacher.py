"""A Transformer run by CTranslate2, several times faster on a CPU: the fast teacher of distillation.

The weights are converted into a temporary folder, loaded from there, and quantised as they are loaded. Beam search has
the Transformer's settings; near ties may be decided otherwise, by rounding. The package ctranslate2 is optional. This
module knows no files of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kermit.baselines.transformer import BeamSearch, Transformer
from kermit.errors import DataError, ModelError, in_a_line
from kermit.tasks.translation import Direction, Translation
from kermit.tasks.translator import Translator
from kermit.text.tokenizer import decode_ids, encode_texts
from kermit.training.settings import Settings

INSTALL = "pip install 'kermit-insertion[distill]'"


@dataclass(frozen=True)
class CTranslate2Teacher:
    """A converted Transformer; make one with `convert`."""

    translator: Translator
    engine: Any
    precision: str
    version: str
    backend: str = "ctranslate2"

    @classmethod
    def convert(cls, translator: Translator, precision: str = "int8") -> CTranslate2Teacher:
        """Convert a Transformer's weights; onto a GPU where there is one, else with as many threads as torch has.

        Args:
            translator: a loaded model of the family `transformer`, in float32.
            precision: `int8`, `float32`, or another compute type that CTranslate2 has for this machine.

        Raises:
            ModelError: the package is missing, the model is of another family, or CTranslate2 cannot run it.
        """
        if not isinstance(translator.model, Transformer):
            raise ModelError(
                f"the backend ctranslate2 runs only the family transformer, and the teacher is of the family"
                f" {translator.family.name}; use the backend transformers"
            )
        try:
            import ctranslate2
        except ModuleNotFoundError as error:
            raise ModelError(f"the backend ctranslate2 needs the package {error.name}; {INSTALL}") from error
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        if precision not in (known := ctranslate2.get_supported_compute_types(device)):
            raise ModelError(
                f"CTranslate2 has no precision {precision} on this machine; known: {', '.join(sorted(known))}"
            )
        threads = torch.get_num_threads() if device == "cpu" else 1
        with TemporaryDirectory(prefix="kermit-ctranslate2-") as folder:
            _specification(translator).save(folder)
            try:
                engine = ctranslate2.Translator(
                    folder, device, compute_type=precision, inter_threads=threads, intra_threads=1
                )
            except (ValueError, RuntimeError) as error:
                raise ModelError(f"CTranslate2 cannot run the teacher: {in_a_line(error)}") from error
        return cls(translator, engine, precision, ctranslate2.__version__)

    def translate(
        self,
        texts: Sequence[str],
        direction: Direction,
        decoding: Settings,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate texts, in their order; `progress` is told once, at the end.

        Log-probabilities are slightly higher than those of `Translator`: special tokens have no share in them.
        """
        self.translator.check(direction)
        if not isinstance(decoding, BeamSearch):
            raise ModelError("a Transformer translates by beam search; give its decoding settings")
        tokenizer, positions = self.translator.tokenizer, self.translator.model.config.max_position_embeddings
        sources = encode_texts(tokenizer, [text.strip() for text in texts])
        for number, source in enumerate(sources):
            if len(source) >= positions:
                raise DataError(f"text {number} has {len(source)} tokens, the model can read {positions - 1}; split it")
        end = tokenizer.sep_token
        found = self.engine.translate_batch(
            [[*tokenizer.convert_ids_to_tokens(source), end] for source in sources],
            beam_size=decoding.beams,
            length_penalty=decoding.length_penalty,
            max_decoding_length=min(decoding.max_tokens, positions - 2) + 1,  # with the end mark
            min_decoding_length=0,
            max_input_length=0,  # no limit but the one above
            max_batch_size=max(1, int(decoding.batch_tokens)),
            batch_type="tokens",
            suppress_sequences=[[token] for token in tokenizer.all_special_tokens if token != end],
            return_end_token=True,
            return_scores=True,
        )
        results = []
        for text, source, result in zip(texts, sources, found, strict=True):
            tokens = result.hypotheses[0] if source else [end]  # of a blank text nothing is made
            finished = tokens[-1:] == [end]
            ids = tokenizer.convert_tokens_to_ids(tokens[:-1])
            results.append(
                Translation(
                    source=text,
                    text=decode_ids(tokenizer, ids),
                    rounds=len(tokens) if source else 0,
                    tokens=len(ids),
                    log_prob=result.scores[0] * len(tokens) ** decoding.length_penalty if source else 0.0,
                    finish="finished" if finished else "max_tokens",
                )
            )
        if progress is not None:
            progress(len(texts))
        return results


def _specification(translator: Translator) -> Any:
    """CTranslate2's description of the model, with its weights.

    It differs from the package's own conversion of Marian models: the decoder starts from the embedding of `[CLS]`
    instead of zeros, and the row of the padding token is kept.
    """
    from ctranslate2.converters.transformers import BartLoader
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    model, tokenizer = translator.model, translator.tokenizer
    config, loader = model.config, BartLoader()
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu_new": Activation.GELUTanh}
    activations |= {"silu": Activation.SWISH, "swish": Activation.SWISH}
    if config.activation_function not in activations:
        raise ModelError(
            f"the backend ctranslate2 has no activation {config.activation_function}, which the teacher was trained"
            f" with; known: {', '.join(activations)}; use the backend transformers"
        )
    specification = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.encoder_attention_heads,
        pre_norm=False,
        activation=activations[config.activation_function],
    )
    loader.set_encoder(specification.encoder, model.model.encoder)
    loader.set_decoder(specification.decoder, model.model.decoder)
    loader.set_linear(specification.decoder.projection, model.lm_head)
    specification.decoder.projection.bias = model.final_logits_bias[0]
    loader.set_vocabulary(specification, tokenizer.convert_ids_to_tokens(range(config.vocab_size)))
    specification.config.add_source_eos = False
    specification.config.bos_token = specification.config.decoder_start_token = tokenizer.cls_token
    specification.config.eos_token = tokenizer.sep_token
    specification.config.unk_token = tokenizer.pad_token  # byte level: nothing is unknown, and it must be a token
    specification.validate()
    specification.optimize(quantization=None)
    return specification
