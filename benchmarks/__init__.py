"""Speed benchmarks: xagents beside other libraries, measured in one run by `make bench`."""
