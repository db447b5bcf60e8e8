"""Sentence splitting, language names, tokenizing, and detokenizing of insertions. No model, no transformers."""
