"""Import paths of version 1.0, for notebooks that were written for that version."""
