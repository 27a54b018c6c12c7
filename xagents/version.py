"""The version; nothing else, so that everybody may know it."""

__version__ = '2.0.0.dev0'
