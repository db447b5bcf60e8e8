"""Text in, batches of token ids out: tokenizer, parallel and plain text, the encoded cache, batching by tokens."""
