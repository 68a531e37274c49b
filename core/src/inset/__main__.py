"""`python -m inset` is the command line."""
