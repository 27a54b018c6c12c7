"""Experience that was recorded: data sets in Minari's form, read and written."""
