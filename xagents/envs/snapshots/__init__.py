"""Exact copies of environments' states: taking and restoring them."""
