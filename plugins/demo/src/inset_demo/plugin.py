"""The hook implementations of this package; imports nothing but the marker."""
