"""Every system of the paper on one task: accuracy, training time, storage, deletions until dead, time of a deletion.

python -m experiments.methods [--smoke] [--method NAME] [--results FILE]
"""
