"""From text to batches of token ids: the tokenizer, parallel and plain text, the encoded cache, batching by tokens."""
