"""The engine: from a request to its answer."""
