"""The pytest plugin that comes with Inset: fixtures for authors of plugins."""
