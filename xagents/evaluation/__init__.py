"""Evaluations of a policy: playing episodes, the evaluation schedule, evaluation in a separate process, videos."""
