"""From names and numbers to an agent, and from a folder; tuned settings."""
