"""Pictures as SVG: chains by slices, depths over time, what lies ahead. Colours are the style sheet's.

What a cell means is told by its shape and by words, too. A picture that stands beside its own numbers is hidden from
screen readers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from markupsafe import Markup

from s3t.core import Stage
from s3t.results.state import Chain, Shard
from s3t.wording import counted, numbers

Cell = Literal["serving", "live", "training", "dead"]
WORDS: dict[Cell, str] = {"serving": "serves", "live": "live", "training": "being repaired", "dead": "missing"}
"""Words for what a cell is."""
MOST_CHAINS = 24
"""Chains of a shard that are drawn."""
_GUTTER = 16
"""Room for the mark of the chain that serves, in pixels."""
_SIZES = ((4, 36, 6), (6, 32, 5), (10, 24, 4), (16, 17, 3))
"""Cells of chains up to so many slices: side and gap, in pixels."""
_OUTLINED = 18
"""Missing cells of so many pixels have an outline; smaller ones would be all outline."""
_RUN_WIDTH, _RUN_HEIGHT, _RUN_GAP = 288, 11, 4
"""Longer chains are drawn as runs of cells, in so much room."""
_HEIGHTS: dict[Cell, float] = {"serving": 1.0, "training": 1.0, "live": 0.6, "dead": 0.2}
WIDTH, HEIGHT = 600, 100
"""Units of a chart, which is stretched to the room that it has."""


def cells_of(shard: Shard, chain: Chain, training: Collection[Stage]) -> list[Cell]:
    """The state of each slice of a shard's chain; the stages in `training` are being trained."""
    live: Cell = "serving" if chain == shard.serving else "live"
    cells: list[Cell] = [live] * chain.depth + ["dead"] * (len(chain.order) - chain.depth)
    if chain.depth < len(cells) and Stage(shard.shard, chain.order[: chain.depth + 1], seen=chain.seen) in training:
        cells[chain.depth] = "training"
    return cells


def chain_in_words(chain: Chain, cells: Sequence[Cell]) -> str:
    """A chain in words.

    >>> chain_in_words(Chain(order=(0, 2, 1), depth=2), ["serving", "serving", "training"])
    '0 2 1: 2 of 3 live, serves, slice 1 is being repaired'
    """
    parts = [f"{chain.depth} of {len(cells)} live"]
    parts += ["serves"] if "serving" in cells else []
    parts += [f"slice {chain.order[cells.index('training')]} is being repaired"] if "training" in cells else []
    return f"{f'{chain.name} ' if chain.name else ''}{numbers(chain.order)}: {', '.join(parts)}"


def chains_picture(shard: Shard, training: Collection[Stage] = (), *, longest: int, name: str = "chains") -> Markup:
    """A shard's chains, a row each: a cell for each slice, or, of many, a bar for each run of equal ones.

    Not all are drawn where there are many, but the one that serves is. `longest` counts the slices of the longest chain
    of any shard, so that all shards are drawn alike.
    """
    shown = list(shard.sequences[:MOST_CHAINS])
    if shard.serving is not None and shard.serving not in shown:
        shown[-1] = shard.serving
    rows = [(chain, cells_of(shard, chain, training)) for chain in shown]
    described = f"{counted(len(rows), 'chain')}. " + ". ".join(chain_in_words(*row) for row in rows)
    side, gap = next(((side, gap) for most, side, gap in _SIZES if longest <= most), (_RUN_HEIGHT, _RUN_GAP))
    small = longest > _SIZES[-1][0]
    width = _GUTTER + (_RUN_WIDTH if small else longest * (side + gap))
    height = len(rows) * (side + gap) + 2
    drawn = Markup("")
    for row, (chain, cells) in enumerate(rows):
        top = row * (side + gap) + 1
        if "serving" in cells:
            drawn += Markup('<path class="mark" d="M2 {}l7 4.5l-7 4.5z"></path>').format(top + side / 2 - 4.5)
        if small:
            drawn += _bars(chain, cells, top, _RUN_WIDTH / longest)
            continue
        for place, (cell, index) in enumerate(zip(cells, chain.order, strict=True)):
            drawn += cell_picture(cell, str(index), left=_GUTTER + place * (side + gap), top=top, side=side)
    label = f"{name}-{shard.shard}"
    return Markup(
        '<svg class="chains" role="img" aria-labelledby="{label} {label}-text" width="{width}" height="{height}" '
        'viewBox="0 0 {width} {height}"><title id="{label}">Chains of shard {shard}</title>'
        '<desc id="{label}-text">{described}</desc>{drawn}</svg>'
    ).format(label=label, width=width, height=height, shard=shard.shard, described=described, drawn=drawn)


def cell_picture(cell: Cell, text: str, *, left: int = 1, top: int = 1, side: int = 18) -> Markup:
    """A cell; its title says what it is."""
    inside = Markup("<title>slice {}: {}</title>").format(text, WORDS[cell])
    if cell != "dead" or side >= _OUTLINED:
        rect = Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{:.1f}"></rect>')
        inside += rect.format(left, top, side, side, side / 5)
    if cell == "dead":
        arm = round(side * 0.4, 1)
        cross = f"M{left + side * 0.3:.1f} {top + side * 0.3:.1f}l{arm} {arm}m0 -{arm}l-{arm} {arm}"
        inside += Markup('<path d="{}"></path>').format(cross)
    elif text:
        shown = Markup('<text x="{:.1f}" y="{:.1f}" font-size="{:.1f}">{}</text>')
        inside += shown.format(left + side / 2, top + side / 2, side * 0.46, text)
    return Markup('<g class="cell {}">{}</g>').format(cell, inside)


def _bars(chain: Chain, cells: Sequence[Cell], top: int, step: float) -> Markup:
    """A chain's runs of equal cells, the more alive the higher."""
    drawn, start = Markup(""), 0
    for end in range(1, len(cells) + 1):
        if end < len(cells) and cells[end] == cells[start]:
            continue
        cell, high = cells[start], _RUN_HEIGHT * _HEIGHTS[cells[start]]
        what = f"slices {start + 1} to {end} of the chain" if end - start > 1 else f"slice {chain.order[start]}"
        left, width = _GUTTER + start * step, max((end - start) * step - 1, 2.0)
        drawn += Markup(
            '<g class="cell {}"><title>{}: {}</title>'
            '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1"></rect></g>'
        ).format(cell, what, WORDS[cell], left, top + (_RUN_HEIGHT - high) / 2, width, high)
        start = end
    return drawn


def depths_picture(times: Sequence[float], rows: Sequence[tuple[float, int, int]], *, most: int) -> Markup:
    """Depths over time: the mean as a line, least to most as an area. Labels stand beside it.

    Args:
        times: of the changes, then the end; at least two, not falling.
        rows: mean, least and most slices from each time to the next; one fewer.
    """
    began, span = times[0], max(times[-1] - times[0], 1e-9)

    def high(depth: float) -> str:
        return f"{HEIGHT * (1 - depth / max(most, 1)):.1f}"

    def stairs(place: int) -> list[str]:
        ends = [(times[step + side], row[place]) for step, row in enumerate(rows) for side in (0, 1)]
        return [f"{WIDTH * (time - began) / span:.1f},{high(depth)}" for time, depth in ends]

    levels = [high(depth) for depth in sorted({0, *(round(most * part / 4) for part in range(1, 5))})]
    line = Markup('<line x1="0" x2="{}" y1="{}" y2="{}"></line>')
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<g class="grid">{}</g><polygon class="area" points="{}"></polygon>'
        '<polyline class="line" points="{}"></polyline></svg>'
    ).format(
        WIDTH,
        HEIGHT,
        Markup("").join(line.format(WIDTH, each, each) for each in levels),
        " ".join([*stairs(2), *reversed(stairs(1))]),
        " ".join(stairs(0)),
    )


def range_picture(mean: float, low: float, high: float, *, most: float) -> Markup:
    """A mean and its spread on an axis from 0 to `most`, by square roots: the near future has more room."""
    start, end, middle = (f"{12 + (WIDTH - 24) * (value / most) ** 0.5:.1f}" for value in (low, high, mean))
    return Markup(
        '<svg class="range" viewBox="0 0 {width} 10" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="rule" d="M0 5H{width}"></path><path class="spread" d="M{start} 5H{end}"></path>'
        '<path class="mean" d="M{middle} 5h0.01"></path></svg>'
    ).format(width=WIDTH, start=start, end=end, middle=middle)
