"""Media connectors for object stores, archives and caches."""
