"""Trust region policy optimisation."""
