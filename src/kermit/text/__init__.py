"""Text before tokens: its sentences and its language."""
