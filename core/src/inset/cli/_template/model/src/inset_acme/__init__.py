"""The model family Acme for Inset."""
