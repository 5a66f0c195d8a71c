"""Random wrong inputs: each is refused in words, and leaves what was there as it was.

    wrong.py     draws inputs: recipes, tables, requests, words of a command
    trial.py     gives one to the command line, and says which promises were broken

`python -m tests.inputs --seed S --trials N` prints its seed; `--only NUMBER` repeats one trial alone.
"""
