"""Records: read from what users have, checked against the recipe, kept as one file a slice."""
