"""The import paths that notebooks of 1.0 use."""
