"""Import paths of version 1.0, for existing notebooks."""
