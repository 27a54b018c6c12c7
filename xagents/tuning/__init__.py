"""Hyperparameter tuning (`xagents tune`) and populations (`xagents tune --population`).

* The command: `plan` checks the options, `search` defines the ranges, `tune` opens the study, `trial_runner` runs the
  trials, `trial_table` and `summary` print them.
* Workers: `worker` contains the jobs of the worker processes; see `xagents.processes` for the processes themselves.
* The study: `studies` creates samplers, pruners and studies, `ownership` records which process runs a trial, `storages`
  opens databases and journals.
* `report` and `plots` write the files of `--out`.
* Populations: `evolve`, `evolution` and `member`.
"""
