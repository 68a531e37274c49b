"""The plugin author's one door: everything that a plugin may import besides `inset` itself."""
