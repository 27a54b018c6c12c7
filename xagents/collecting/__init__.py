"""Collecting experience: policies, the collector that lets them act in environments, and running statistics."""
