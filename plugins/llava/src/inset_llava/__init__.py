"""LLaVA 1.5 and LLaVA-NeXT for Inset."""
