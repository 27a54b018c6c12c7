"""What is shown of runs that are kept: curves, tables, statistics."""
