"""KERMIT: generative modelling of texts and pairs of texts by insertion."""
