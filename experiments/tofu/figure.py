"""The picture of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import legend_below, panels, title
from experiments.tofu.records import SETS

NAMES = {"forget01": "2 authors", "forget05": "10 authors", "forget10": "20 authors"}
COLOURS = ("#000000", "#009E73", "#D55E00", "#E69F00", "#0072B2", "#56B4E9", "#CC79A7", "#767676", "#8C564B", "#B0B0B0")
"""Of systems, in their order."""


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Memorisation of the deleted authors, utility, depth after each author, and what an attacker gets."""
    summary = results["summary"]
    systems = summary["systems"]
    forgotten, utility, depth, attack = panels(figure, 2, 2, height=7.4)
    _bars(forgotten, systems, lambda own: own["forget"]["rouge_l_recall"])
    title(forgotten, "Left of the deleted authors", x="", y="ROUGE-L recall of their answers")
    _bars(utility, systems, lambda own: own["model_utility"])
    title(utility, "Left for the others", x="", y="model utility, as far as computed here")
    colours = dict(zip(systems, COLOURS, strict=False))  # of all panels
    for name, depths in summary["depth"].items():
        depth.plot(range(1, len(depths) + 1), depths, color=colours[name])
    depth.set_ylim(bottom=0)
    title(depth, "Slices that serve, after repair", x="authors deleted", y="slices, mean of shards")
    for name, found in summary["attack"].items():
        last: Mapping[str, Any] = next((found[each] for each in reversed(SETS) if found.get(each)), {})
        recalls = [own["rouge_l_recall"] for own in last.values()]
        attack.plot(list(map(float, last)), recalls, color=colours[name], marker="o")
    title(attack, "Attacker with both models", x="w: 0 after, 1 before", y="ROUGE-L recall")
    legend_below(figure, forgotten, columns=3)


def _bars(axes: Axes, systems: Mapping[str, Any], value: Any) -> None:
    """A group of bars a set of authors, a bar a system; nothing where a system is dead or was not asked."""
    for number, (name, found) in enumerate(systems.items()):
        places = [place + 0.8 * (number + 0.5) / len(systems) - 0.4 for place in range(len(SETS))]
        heights = [value(found[each]) if found.get(each) else 0.0 for each in SETS]
        axes.bar(places, heights, width=0.76 / len(systems), color=COLOURS[number % len(COLOURS)], label=name)
    axes.set_xticks(range(len(SETS)), [NAMES[each] for each in SETS])
    axes.grid(visible=False, axis="x")
