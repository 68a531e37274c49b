"""Media: fetched as bytes, named by their bytes, decoded as late as possible."""
