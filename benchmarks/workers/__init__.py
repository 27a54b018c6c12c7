"""The measured processes, one script for each library, which runs in the virtual environment of the library."""
