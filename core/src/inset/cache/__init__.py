"""Processor caches: processed items by their hash, in two halves."""
