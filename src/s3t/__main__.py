"""`python -m s3t`: the same as `s3t`, whatever package brings that program."""

from importlib.metadata import distribution

(program,) = distribution("s3t").entry_points.select(group="console_scripts", name="s3t")
program.load()()
