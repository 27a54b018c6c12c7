"""Reports on saved runs: curves, tables and statistics."""
