"""The machine: files, locks, processes, signals, memory, how a process starts."""
