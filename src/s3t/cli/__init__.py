"""The command line. Each command parses, calls one method of `Run`, and renders what it returns.

Imports neither torch nor the library's rooms until a command runs, so `s3t --help` answers at once.
"""
