"""Tiny trained checkpoints and sample media for Inset."""
