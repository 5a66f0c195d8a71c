"""What tests, benchmarks and experiments share: tiny models and runs, plain references, a PostgreSQL server.

It imports the package alone, never tests, benchmarks or experiments.
"""
