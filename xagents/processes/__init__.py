"""Child processes: start, exchange messages, replace and end, on this machine or on those of a Ray cluster."""
