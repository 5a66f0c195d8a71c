"""One run on a disk: paths, describing files, the secret, which folder is the run's, leftovers, its database."""
