"""A type of processor cache for Inset."""
