"""Checks of environments and of runs, which name the likely cause if an agent does not learn.

`environment` checks an environment before training; `run` checks what `run_data` reads from a run directory.
"""
