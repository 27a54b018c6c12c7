"""Benchmarks of xagents, compared with other libraries; see README.md."""
