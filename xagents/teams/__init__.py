"""Several policies that learn in the same environments at the same time, each with its own agent."""
