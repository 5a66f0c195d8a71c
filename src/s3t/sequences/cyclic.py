"""Iterative cyclic rotation (paper, Section 3.3 and Algorithm 1).

`cyclic` departs from the paper twice. For B < L the paper's first B rotations are adjacent, and their prefixes
overlap; ours are spaced L/B apart, which keeps the prefixes disjoint. For B > L the paper's suffix rotations are cut
off at B, so the last ones favour some slices. Ours are dealt round-robin over the first slice. `cyclic_adjacent` is the
paper's.
"""

from __future__ import annotations

from s3t.sequences.selector import Order, Setting


def cyclic(setting: Setting) -> tuple[Order, ...]:
    """Exactly B distinct orders; every slice is at the top equally often, give or take one. Knows no prior.

    >>> cyclic(Setting(slices=4, budget=4))
    ((0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2))
    >>> cyclic(Setting(slices=4, budget=2))
    ((0, 1, 2, 3), (2, 3, 0, 1))
    >>> cyclic(Setting(slices=3, budget=5))
    ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2))
    """
    slices, budget = setting.slices, setting.budget
    if budget <= slices:
        return tuple(_rotated(slices, (index * slices // budget,)) for index in range(budget))
    return tuple(order_of_number(slices, index) for index in range(budget))


def cyclic_adjacent(setting: Setting) -> tuple[Order, ...]:
    """The paper's Algorithm 1 to the letter: the first B of the right rotations, then of their suffixes' rotations.

    >>> cyclic_adjacent(Setting(slices=4, budget=2))
    ((0, 1, 2, 3), (3, 0, 1, 2))
    >>> cyclic_adjacent(Setting(slices=3, budget=5))
    ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1), (2, 1, 0))
    """
    orders = dict.fromkeys(_right_rotations(tuple(range(setting.slices)))[: setting.budget])
    for fixed in range(1, setting.slices):
        for order in tuple(orders):
            if len(orders) >= setting.budget:
                break
            orders |= dict.fromkeys(order[:fixed] + suffix for suffix in _right_rotations(order[fixed:]))
    return tuple(orders)[: setting.budget]


def order_of_number(slices: int, number: int) -> Order:
    """A one-to-one numbering of all L! orders from 0; each L from a multiple of L have L different slices on top.

    The number's digits in base L, L-1, ..., lowest first, say how far each suffix is rotated.
    """
    turns = []
    for length in range(slices, 1, -1):
        number, turn = divmod(number, length)
        turns.append(turn)
    return _rotated(slices, tuple(turns))


def _rotated(slices: int, turns: tuple[int, ...]) -> Order:
    """0..L-1 rotated by turns[0], then its suffix after position i rotated by turns[i]."""
    order = list(range(slices))
    for position, turn in enumerate(turns):
        suffix = order[position:]
        order[position:] = suffix[turn:] + suffix[:turn]
    return tuple(order)


def _right_rotations(order: Order) -> list[Order]:
    return [order[len(order) - turn :] + order[: len(order) - turn] for turn in range(len(order))]
