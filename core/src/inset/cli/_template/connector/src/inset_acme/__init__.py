"""acme: URLs for Inset."""
