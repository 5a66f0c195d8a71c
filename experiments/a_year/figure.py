"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.a_year.experiment import Config, reckoned
from experiments.drawing import legend_below, panels, title

LOOKS = {"full": "#555555", "s3t": "#0072B2", "ridge": "#E69F00"}
"""Colours of the systems."""
NAMES = {
    "full": "full fine-tuning, every night",
    "s3t": "S3T, learns weekly, repairs nightly",
    "ridge": "a head on frozen features",
}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Accuracy over the month, lines for mornings and dots for evenings; hours of training over the year."""
    month, year = panels(figure, 1, 2, height=3.6)
    config = Config.model_validate(results["config"])
    for row in results["rows"]:
        system, days = row["system"], range(1, config.days + 1)
        evening, morning = ([100 * (each or 0.0) for each in row[when]] for when in ("evening", "morning"))
        month.plot(days, morning, color=LOOKS[system], label=NAMES[system])
        month.plot(days, evening, ".", color=LOOKS[system], markersize=4)
        year.plot(range(config.year + 1), reckoned(config, system, row), color=LOOKS[system])
    year.set_yscale("log")
    title(month, "A month, lived", x="days", y="accuracy (%); dots: before the night")
    title(year, "A year, reckoned", x="days", y="CPU hours of training")
    legend_below(figure, month, columns=3)
