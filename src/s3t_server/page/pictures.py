"""Pictures as SVG: chains by slices, depths over time, what lies ahead. Colours are the style sheet's.

What a cell means is told by its shape and by words, too. A picture that stands beside its own numbers is hidden from
screen readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from s3t.core import Order
from s3t.wording import counted, numbers

Cell = Literal["serving", "live", "training", "dead"]
WORDS: dict[Cell, str] = {"serving": "serves", "live": "live", "training": "being repaired", "dead": "missing"}
"""Words for what a cell is."""
_GUTTER = 16
"""Room for the mark of the chain that serves, in pixels."""
_SIZES = ((4, 36, 6), (6, 32, 5), (10, 24, 4), (16, 17, 3))
"""Cells of chains up to so many slices: side and gap, in pixels."""
_OUTLINED = 18
"""Missing cells of so many pixels have an outline; smaller ones would be all outline."""
_RUN_WIDTH, _RUN_HEIGHT, _RUN_GAP = 288, 11, 4
"""Longer chains are drawn as runs of cells, in so much room."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain of a shard, with what is drawn of it."""

    slices: Order
    live: int
    """Live slices, from the first."""
    serving: int
    """Slices that serve; 0: another chain does."""
    training: int | None
    """Place of the slice that is being trained; None: none is."""
    name: str = ""
    """Main or spare, where chains grow as needed."""

    def cell(self, place: int) -> Cell:
        """State of the slice at a place of the chain."""
        if place == self.training:
            return "training"
        return "serving" if place < self.serving else "live" if place < self.live else "dead"

    def described(self) -> str:
        """The chain in words.

        >>> Chain(slices=(0, 2, 1), live=2, serving=2, training=2).described()
        '0 2 1: 2 of 3 live, serves, slice 1 is being repaired'
        """
        parts = [f"{self.live} of {len(self.slices)} live"]
        parts += ["serves"] if self.serving else []
        parts += [f"slice {self.slices[self.training]} is being repaired"] if self.training is not None else []
        return f"{f'{self.name} ' if self.name else ''}{numbers(self.slices)}: {', '.join(parts)}"


def chains_picture(shard: int, chains: Sequence[Chain], *, longest: int, name: str = "chains") -> Markup:
    """A shard's chains: a row each, and a cell for each slice.

    Args:
        chains: in order.
        longest: slices of the longest chain of any shard, so that all shards are drawn alike.
    """
    sizes = [(side, gap) for most, side, gap in _SIZES if longest <= most]
    rows, width, height = _cells(chains, longest, *sizes[0]) if sizes else _runs(chains, longest)
    described = f"{counted(len(chains), 'chain')}. " + ". ".join(chain.described() for chain in chains)
    return Markup(
        '<svg class="chains" role="img" aria-labelledby="{5}-{0} {5}-{0}-text" width="{1}" height="{2}"'
        ' viewBox="0 0 {1} {2}"><title id="{5}-{0}">Chains of shard {0}</title><desc id="{5}-{0}-text">{3}</desc>'
        "{4}</svg>"
    ).format(shard, width, height, described, _joined(rows), name)


def _cells(chains: Sequence[Chain], longest: int, side: int, gap: int) -> tuple[list[Markup], int, int]:
    step = side + gap
    rows = []
    for row, chain in enumerate(chains):
        top = row * step + 1
        if chain.serving:
            rows.append(_mark(top + side / 2))
        for place, index in enumerate(chain.slices):
            rows.append(cell_picture(chain.cell(place), str(index), left=_GUTTER + place * step, top=top, side=side))
    return rows, _GUTTER + longest * step, len(chains) * step + 2


def cell_picture(cell: Cell, text: str, *, left: float = 1, top: float = 1, side: int = 18) -> Markup:
    """A cell; its title says what it is."""
    middle = left + side / 2, top + side / 2
    outlined = cell != "dead" or side >= _OUTLINED
    cross = Markup('<path d="M{} {}l{} {}m0 {}l{} {}"/>').format(
        left + side * 0.3, top + side * 0.3, side * 0.4, side * 0.4, -side * 0.4, -side * 0.4, side * 0.4
    )
    shown = text if cell != "dead" else ""
    return Markup('<g class="cell {}"><title>slice {}: {}</title>{}{}{}</g>').format(
        cell,
        text,
        WORDS[cell],
        Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}"/>').format(left, top, side, side, round(side / 5, 1))
        if outlined
        else "",
        cross if cell == "dead" else "",
        Markup('<text x="{}" y="{}" font-size="{}">{}</text>').format(*middle, round(side * 0.46, 1), shown)
        if shown
        else "",
    )


def _runs(chains: Sequence[Chain], longest: int) -> tuple[list[Markup], int, int]:
    """Chains of many slices: a bar of each run of equal cells, the more alive the higher."""
    step, rows = _RUN_WIDTH / longest, []
    for row, chain in enumerate(chains):
        top = row * (_RUN_HEIGHT + _RUN_GAP) + 1
        if chain.serving:
            rows.append(_mark(top + _RUN_HEIGHT / 2))
        for cell, start, end in _equal(chain):
            share = {"serving": 1.0, "training": 1.0, "live": 0.6, "dead": 0.2}[cell]
            high = _RUN_HEIGHT * share
            what = f"slices {start + 1} to {end} of the chain" if end - start > 1 else f"slice {chain.slices[start]}"
            rows.append(
                Markup(
                    '<g class="cell {}"><title>{}: {}</title><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'
                    ' rx="1"/></g>'
                ).format(
                    cell,
                    what,
                    WORDS[cell],
                    _GUTTER + start * step,
                    top + (_RUN_HEIGHT - high) / 2,
                    max((end - start) * step - 1, 2),
                    high,
                )
            )
    return rows, _GUTTER + _RUN_WIDTH, len(chains) * (_RUN_HEIGHT + _RUN_GAP) + 2


def _equal(chain: Chain) -> Iterable[tuple[Cell, int, int]]:
    """Runs of equal cells: what they are, the first place, and the one after the last."""
    start = 0
    for place in range(1, len(chain.slices) + 1):
        if place == len(chain.slices) or chain.cell(place) != chain.cell(start):
            yield chain.cell(start), start, place
            start = place


def _mark(middle: float) -> Markup:
    return Markup('<path class="mark" d="M2 {}l7 4.5l-7 4.5z"/>').format(middle - 4.5)


WIDTH, HEIGHT = 600, 100
"""Units of a chart, which is stretched to the room that it has."""


def depths_picture(times: Sequence[float], rows: Sequence[tuple[float, int, int]], *, most: int) -> Markup:
    """Depths over time: the mean as a line, least to most as an area. Labels stand beside it.

    Args:
        times: of the changes, then the end; at least two, not falling.
        rows: mean, least and most slices from each time to the next; one fewer.
    """
    began, span = times[0], max(times[-1] - times[0], 1e-9)

    def at(time: float) -> str:
        return f"{WIDTH * (time - began) / span:.1f}"

    def high(depth: float) -> str:
        return f"{HEIGHT * (1 - depth / max(most, 1)):.1f}"

    def stairs(place: int) -> list[tuple[str, str]]:
        return [(at(times[step + side]), high(row[place])) for step, row in enumerate(rows) for side in (0, 1)]

    line = " ".join(f"{x},{y}" for x, y in stairs(0))
    area = " ".join(f"{x},{y}" for x, y in [*stairs(2), *reversed(stairs(1))])
    grid = _joined(
        Markup('<line x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, high(depth), high(depth))
        for depth in sorted({0, *(round(most * part / 4) for part in range(1, 5))})
    )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true"><g class="grid">{}</g>'
        '<polygon class="area" points="{}"/><polyline class="line" points="{}"/></svg>'
    ).format(WIDTH, HEIGHT, grid, area, line)


def range_picture(mean: float, low: float, high: float, *, most: float) -> Markup:
    """A mean and its spread on an axis from 0 to `most`, by square roots: the near future has more room."""

    def at(value: float) -> str:
        return f"{12 + (WIDTH - 24) * (value / most) ** 0.5:.1f}"

    return Markup(
        '<svg class="range" viewBox="0 0 {0} 10" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="rule" d="M0 5H{0}"/><path class="spread" d="M{1} 5H{2}"/>'
        '<path class="mean" d="M{3} 5h0.01"/></svg>'
    ).format(WIDTH, at(low), at(high), at(mean))


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
