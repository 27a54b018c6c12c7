"""Exact copies of environments, written and put back."""
