"""Recorded data sets in the format of Minari: reading and writing."""
