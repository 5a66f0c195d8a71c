"""The number of deletions by brute force, in fractions: every state of the system, step by step."""

from collections import defaultdict
from fractions import Fraction


def distribution(weights, records, targets, upto):
    """P(T <= r) for r = 0 .. upto; T is when the first target is complete.

    `weights` are whole numbers, of a cell with replacement, of a record without; cells are numbered from 0; `records`
    is None with replacement.
    """
    states = {(0,) * len(weights): Fraction(1)}
    found = [Fraction(0)]
    for _ in range(upto):
        states, done = step(states, weights, records, targets)
        found.append(found[-1] + done)
    return found


def step(states, weights, records, targets):
    after, done = defaultdict(Fraction), Fraction(0)
    for deleted, chance in states.items():
        left = [
            weight * (1 if records is None else records[cell] - deleted[cell]) for cell, weight in enumerate(weights)
        ]
        for cell in (cell for cell, amount in enumerate(left) if amount):
            count = 1 if records is None else deleted[cell] + 1
            state = (*deleted[:cell], count, *deleted[cell + 1 :])
            share = chance * Fraction(left[cell], sum(left))
            if any(all(state[member] for member in target) for target in targets):
                done += share
            else:
                after[state] += share
    return after, done


def mean(weights, targets):
    """E[T] with replacement."""
    total, known = sum(weights), {}

    def expected(hit):
        if any(target <= hit for target in targets):
            return Fraction(0)
        if hit not in known:
            fresh = [cell for cell in range(len(weights)) if cell not in hit and weights[cell]]
            after = sum((Fraction(weights[cell], total) * expected(hit | {cell}) for cell in fresh), Fraction(0))
            known[hit] = (1 + after) / Fraction(sum(weights[cell] for cell in fresh), total)
        return known[hit]

    return expected(frozenset())
