"""Parallelised Q-network."""
