"""Starts the harness: `python benchmarks/run.py`, from anywhere."""

import sys
from pathlib import Path

# a script's own folder is on the path, not the repository's
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import main

if __name__ == '__main__':
    sys.exit(main())
