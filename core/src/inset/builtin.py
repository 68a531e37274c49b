"""The built-in plugin of the core: its own hook implementations, found through its entry point like any other."""
