"""Optimisers, gradient steps within compiled updates, and target networks."""
