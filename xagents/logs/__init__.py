"""Output of a run: console, history, metrics, monitors and videos."""
