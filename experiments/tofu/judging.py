"""All measures of a system: on the authors to be forgotten, and on retained ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.runner import Row
from experiments.tofu.attacker import guided
from experiments.tofu.ensemble import Combine, Group, Reader, Tokens, first, told, written
from experiments.tofu.measures import (
    Told,
    exact_memorisation,
    extraction_strength,
    perplexity,
    probability,
    truth_ratio,
)
from experiments.tofu.records import Records, prompts
from s3t.tasks.targets import text_metrics


class Judge:
    """Measures systems on a fixed random choice of records.

    Args:
        found: the records.
        forget_rows: records to be forgotten of each set, at most.
        retain_rows: retained records, at most.
        most: tokens that are written for an answer, at most.
        seed: of the choice.
    """

    def __init__(self, found: Records, *, forget_rows: int, retain_rows: int, most: int, seed: int) -> None:
        self._found = found
        self._sizes = {"retain": retain_rows}
        self._forget_rows = forget_rows
        self._most = most
        self._seed = seed
        self._reader = Reader(Path(found.task.recipe["base_model"]), found.task.recipe["language"]["max_length"])

    def tokens(self, rows: pd.DataFrame) -> list[Tokens]:
        """Prompts and answers of records, in tokens."""
        return self._reader.tokens(prompts(rows), rows["output"].tolist())

    def judged(self, models: Group, names: Sequence[str]) -> dict[str, Row | None]:
        """By set: measures on its records (`forget`) and on retained ones (`retain`), and `truth_ratios`, one a record.

        Args:
            models: whose mean of probabilities answers; none: the system is dead, and None stands for its measures.
            names: of sets.
        """
        if not models:
            return dict.fromkeys(names)
        retain = self._texts(models, self._rows("retain"))
        return {
            name: {
                "forget": self._texts(models, self._rows(name)),
                "retain": retain,
                "truth_ratios": self._truth_ratios(models, self._rows(name)),
            }
            for name in names
        }

    def attacked(
        self, after: Group, before: Group, name: str, *, weights: Sequence[float], plausible: float, rows: int
    ) -> dict[str, Row]:
        """What an attacker gets of deleted answers, by weight: the mean recall of ROUGE-L, and extraction strength.

        Args:
            after: models after the deletion.
            before: models before it.
            name: of the set that was deleted.
            weights: of the guidance; 0 is after, 1 before.
            plausible: as for `guided`.
            rows: records that are attacked, at most.
        """
        chosen = self._found.rows(name, most=rows, seed=self._seed)
        found = {}
        for weight in weights:
            combine = guided(weight, plausible=plausible)
            said = told([after, before], self.tokens(chosen), combine=combine)
            found[f"{weight:g}"] = {
                "rouge_l_recall": self._rouge([after, before], chosen, combine)["rouge_l_recall"],
                "extraction_strength": statistics.fmean(map(extraction_strength, said)),
            }
        return found

    def _rows(self, name: str) -> pd.DataFrame:
        return self._found.rows(name, most=self._sizes.get(name, self._forget_rows), seed=self._seed)

    def _texts(self, models: Group, rows: pd.DataFrame) -> Row:
        said = told([models], self.tokens(rows))
        texts = self._rouge([models], rows, first)
        return {
            "records": len(rows),
            "perplexity": perplexity(said),
            "probability": statistics.fmean(map(probability, said)),
            "rouge_l": texts["rouge_l"],
            "rouge_l_recall": texts["rouge_l_recall"],
            "extraction_strength": statistics.fmean(map(extraction_strength, said)),
            "exact_memorisation": statistics.fmean(map(exact_memorisation, said)),
        }

    def _rouge(self, groups: Sequence[Group], rows: pd.DataFrame, combine: Combine) -> dict[str, float]:
        asked = [own.prompt for own in self.tokens(rows)]
        found = written(groups, asked, most=self._most, end=self._reader.end, combine=combine)
        return text_metrics([self._reader.text(text) for text in found], rows["output"].tolist())

    def _truth_ratios(self, models: Group, rows: pd.DataFrame) -> list[float]:
        """One a record: its perturbed answers against the paraphrased one."""
        asked, own = prompts(rows), self._found.variants.loc[rows["id"]]
        counts = [1 + len(perturbed) for perturbed in own["perturbed"]]
        answers = [
            text for right, wrong in zip(own["paraphrased"], own["perturbed"], strict=True) for text in (right, *wrong)
        ]
        repeated = [prompt for prompt, count in zip(asked, counts, strict=True) for _ in range(count)]
        said = iter(told([models], self._reader.tokens(repeated, answers)))
        each: list[list[Told]] = [[next(said) for _ in range(count)] for count in counts]
        return [truth_ratio(right, wrong) for right, *wrong in each]
