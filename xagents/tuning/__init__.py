"""`xagents tune`: the call (`plan`, `search`, `tune`, `call`, `summary`, `table`), its workers and its study.

`processes` is the parent's side of the workers, `worker` their own. `studies` chooses settings, `ownership` says who
runs a trial, `storages` keeps both, `report` and `pictures` are what `--out` writes.
"""
