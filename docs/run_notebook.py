"""Runs docs/walkthrough.ipynb and stores its outputs in it: `make notebook`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).absolute().parent / 'walkthrough.ipynb'


def run() -> None:
    """Run all cells in an empty folder, and write the notebook with their outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {'metadata': {'path': folder}}
        NotebookClient(notebook, timeout=600, kernel_name='python3', record_timing=False, resources=resources).execute()
    nbformat.write(notebook, NOTEBOOK)


if __name__ == '__main__':
    run()
