"""The processes that a benchmark measures, one script a library; each runs in its library's own virtual environment."""
