"""A Transformer run by CTranslate2, several times faster on a CPU: the fast teacher for distillation.

The weights are converted into a temporary folder, and quantised while they are loaded from there. Beam search has the
Transformer's settings; rounding may break near ties differently. The package ctranslate2 is optional. This module reads
no text files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kermit.errors import ModelError, in_a_line
from kermit.families.transformer import BeamSearch, BeamSearcher
from kermit.pipeline import Kermit
from kermit.searcher import Hypothesis

INSTALL = "pip install 'kermit-insertion[distill]'"


class CTranslate2Searcher(BeamSearcher):
    """A converted Transformer, as returned by `converted`."""

    backend = "ctranslate2"

    def __init__(self, searcher: BeamSearcher, translator: Any, precision: str, version: str) -> None:
        super().__init__(searcher.model, searcher.tokenizer)
        self.translator, self.version = translator, version
        self.info = replace(self.info, precision=precision)

    def search(
        self, sources: Sequence[Sequence[int]], settings: BeamSearch, on_progress: Callable[[int], object] | None = None
    ) -> list[Hypothesis]:
        """Translate sources; `on_progress` is called once, at the end.

        Log-probabilities are slightly higher than torch's, because special tokens get no probability.
        """
        tokenizer, end = self.tokenizer, self.tokenizer.sep_token
        results = self.translator.translate_batch(
            [[*tokenizer.convert_ids_to_tokens(list(source)), end] for source in sources],
            beam_size=settings.beams,
            length_penalty=settings.length_penalty,
            max_decoding_length=min(settings.max_tokens, self.model.config.max_position_embeddings - 2)
            + 1,  # including the end token
            min_decoding_length=0,
            max_input_length=0,  # only the model's own limit
            max_batch_size=max(1, int(settings.batch_tokens)),
            batch_type="tokens",
            suppress_sequences=[[token] for token in tokenizer.all_special_tokens if token != end],
            return_end_token=True,
            return_scores=True,
        )
        found = []
        for result in results:
            tokens = result.hypotheses[0]
            finished = tokens[-1:] == [end]
            ids = tokenizer.convert_tokens_to_ids(tokens[:-1])
            found.append(Hypothesis(ids, finished, result.scores[0] * len(tokens) ** settings.length_penalty))
        if on_progress is not None:
            on_progress(len(sources))
        return found


def converted(kermit: Kermit, precision: str = "int8", *, threads_per_batch: int | None = None) -> Kermit:
    """Convert a Transformer to CTranslate2: on a GPU if there is one, else with torch's number of threads.

    Args:
        precision: `int8`, `float32`, or another compute type that CTranslate2 supports on this machine.
        threads_per_batch: translate one batch at a time with this many threads, for the lowest latency; by default
            several batches with one thread each.

    Raises:
        ModelError: the package is missing, the model is not a Transformer, or CTranslate2 cannot run it.
    """
    searcher = kermit.searcher
    if not isinstance(searcher, BeamSearcher):
        raise ModelError(
            "the backend ctranslate2 supports only the family transformer, but the teacher's model_type is"
            f" {kermit.model_type}; use the backend transformers"
        )
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise ModelError(f"the backend ctranslate2 needs the package {error.name}; {INSTALL}") from error
    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    if precision not in (known := ctranslate2.get_supported_compute_types(device)):
        raise ModelError(f"CTranslate2 does not support {precision} on this machine, only {', '.join(sorted(known))}")
    batches = torch.get_num_threads() if device == "cpu" and threads_per_batch is None else 1
    with TemporaryDirectory(prefix="kermit-ctranslate2-") as folder:
        save_converted(searcher, folder)
        try:
            translator = ctranslate2.Translator(
                folder, device, compute_type=precision, inter_threads=batches, intra_threads=threads_per_batch or 1
            )
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"CTranslate2 cannot run the teacher: {in_a_line(error)}") from error
    run = CTranslate2Searcher(searcher, translator, precision, ctranslate2.__version__)
    return Kermit(run, kermit.tokenizer, folder=kermit.folder)


def save_converted(searcher: BeamSearcher, folder: str | Path) -> None:
    """Write a Transformer in CTranslate2's format.

    Unlike in the package's own conversion of Marian models, the decoder starts from the embedding of `[CLS]` instead of
    zeros, and the row of the padding token is kept.
    """
    from ctranslate2.converters.transformers import BartLoader
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    model, tokenizer = searcher.model, searcher.tokenizer
    config, loader = model.config, BartLoader()
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu_new": Activation.GELUTanh}
    activations |= {"silu": Activation.SWISH, "swish": Activation.SWISH}
    if config.activation_function not in activations:
        raise ModelError(
            f"the backend ctranslate2 does not support the teacher's activation {config.activation_function}, only"
            f" {', '.join(activations)}; use the backend transformers"
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
    specification.config.unk_token = tokenizer.pad_token  # byte level has no unknown token, but CTranslate2 needs one
    specification.validate()
    specification.optimize(quantization=None)
    Path(folder).mkdir(parents=True, exist_ok=True)
    specification.save(str(folder))
