"""Text before tokens: splitting it into sentences."""
