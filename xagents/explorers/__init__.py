"""Collecting in other processes: orders go out, fragments come back. Loads no TensorFlow."""
