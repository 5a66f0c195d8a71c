"""README's table of measured numbers holds those of the committed results."""

import re

import pytest

from tests.benchmarks.test_docs import ROOT
from tests.benchmarks.test_docs import stored as results

ROW = r"(?m)^\|[^|]*\|(?P<values>.*)\| \[(?P<benchmark>\w+)\]\(benchmarks/results/"
VALUES: dict[str, str] = {}
for found in re.finditer(ROW, (ROOT / "README.md").read_text()):
    VALUES[found["benchmark"]] = VALUES.get(found["benchmark"], "") + found["values"]


def of_deletion():
    rows = [(what, name) for name in ("median_ms", "p99_ms") for what in ("s3t", "plain")]
    return [f"{results('deletion')[what][name]:.1f}" for what, name in rows]


def of_ledger():
    databases = [results("ledger")["concurrent"][name] for name in ("sqlite", "postgres")]
    names = ("per_second", "p99_ms")
    return [f"{each[way][name]:,.0f}" for each in databases for name in names for way in ("grouped", "single")]


def of_data_sets():
    found = [each["times_as_fast"] for each in results("data_sets")["data_sets"].values()]
    return [f"{number:.2f}" for number in (min(found), max(found))]


def of_ensemble():
    """The worst and the best of all data sets and both precisions."""
    found = results("ensemble").values()
    full = [many["times_as_fast"] for each in found for case, many in each["many_inputs"].items() if "full" in case]
    ranges = [full, [one["one_over_merged"] for each in found for one in each.get("one_text", {}).values()]]
    return [f"{number:.2f}" for values in ranges for number in (min(values), max(values))]


def of_banking77():
    first, *_, last = [each["accuracy"] for each in results("banking77-slice_wise")["per_depth"]]
    return [f"{accuracy:.3f}" for accuracy in (first, last, results("banking77-one_adapter")["accuracy"])]


def of_language():
    """The best and the worst of all opponents."""
    found = [each["times_as_fast"] for each in results("language")["training"]["against"].values()]
    return [f"{number:.2f}" for number in (min(found), max(found))]


def of_sequences():
    (row,) = (row for row in results("sequences")["survival"] if (row["slices"], row["budget"]) == (16, 4))
    return [f"{row['gain_in_summed_depth']['cyclic-adjacent']:.2f}"]


NUMBERS = {name.removeprefix("of_"): own for name, own in list(vars().items()) if name.startswith("of_")}


@pytest.mark.parametrize("benchmark", NUMBERS)
def test_rows_have_the_numbers_of_their_results(benchmark):
    assert VALUES.keys() == NUMBERS.keys()
    assert re.findall(r"(?<!\w)\d[\d,]*\.?\d*\b", VALUES[benchmark]) == NUMBERS[benchmark]()
