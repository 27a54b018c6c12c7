"""What a run says and writes down: console, history, metrics, monitors, videos."""
