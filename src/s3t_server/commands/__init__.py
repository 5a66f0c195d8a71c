"""Commands of the program `s3t` that serve a run, or are about its servers."""
