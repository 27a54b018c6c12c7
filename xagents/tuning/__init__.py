"""`xagents tune`: a study, and the workers that run its trials."""
