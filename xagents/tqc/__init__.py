"""Truncated quantile critics."""
