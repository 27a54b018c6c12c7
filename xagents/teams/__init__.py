"""Several policies that learn together in one environment, each by an agent of its own."""
