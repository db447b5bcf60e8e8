"""Text: its sentences and language, tokens of texts, and spelling what was inserted. No model, no transformers."""
