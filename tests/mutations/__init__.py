"""Mistakes that somebody could make in s3t, each with the tests that must fail on it.

    *.toml        the mistakes, a file a room
    catalogue.py  reads and checks them
    campaign.py   plants one in a copy of the tree, and runs tests on that

`python -m tests.mutations` lists them; with names, or `--all`, it plants them one after the other. The working tree is
never edited.
"""
