"""Operating system: files, locks, processes, signals, memory and the start of a process."""
