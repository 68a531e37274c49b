"""Processing: from messages and media to token ids, placeholders and tensors."""
