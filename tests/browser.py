"""The browser of the tests of pages, which makes no requests of its own."""

import shutil

import pytest

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
ARGUMENTS = (
    *('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'),
    *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed')
