"""What the docs tell of training is what the committed results hold."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.data_sets import COMPETENT, FIRST, FROZEN, WHOLE
from benchmarks.ensemble import table_rows
from benchmarks.together import MOST_COST
from s3t.run.reporting import STEPS_A_LABEL
from s3t.training.numerics import WIDTH_A_THREAD

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = " ".join((ROOT / "docs" / "benchmarks.md").read_text().split())
README = " ".join((ROOT / "README.md").read_text().split())
BOTH = ("float32", "bfloat16")
TITLES = {"banking77": "banking77", "sst2": "SST-2", "cola": "CoLA", "stsb": "STS-B", "cifar10": "CIFAR-10"}


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def results(part):
    return stored(f"training-{part}")


def row(what, values):
    return f"| {what} | {' | '.join(values)} |"


def listed(ratios):
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def points(found):
    return f"{found['mean']:+.1f} ± {found['standard_error']:.1f}"


def test_every_data_set_against_the_competent_loop_and_the_plain_procedure():
    found = stored("data_sets")["data_sets"]
    assert len(found) == 5
    for each in found.values():
        fast = f"{each['times_as_fast']:.2f}; {each['times_as_fast_as_plain']:.2f}"
        stages = listed(each["times_as_fast_by_stage"])
        names = ("s3t", "competent", "plain without dropout")
        seconds = ", ".join(f"{each['seconds'][name]:.1f}" for name in names)
        scores = ", ".join(f"{each['scores'][name]:.3f}" for name in names)
        above = points(each["points_above"])
        assert f"| {fast} | {stages} | {seconds} s | {scores} | {above} |" in PAGE
    loads = [
        run["load_before"] for runs in stored("data_sets")["runs"].values() for one in runs for run in one.values()
    ]
    assert f"load averages of {min(loads):.1f} to {max(loads):.1f}" in PAGE


def test_a_deep_model_against_the_competent_loop():
    found = json.loads((ROOT / "benchmarks" / "results" / "deep.json").read_text())
    assert len(found["runs"]) == 1
    assert f"{found['times_as_fast']:.2f} times as fast as the loop." in PAGE


def test_the_cache_against_its_bound():
    found = results("cache")["cache"]
    for what in ("stage 1", "all stages"):
        gains = [found[precision][what] for precision in BOTH]
        told = f"cache, {what}: times as fast; share of the bound {gains[0]['bound']:.3g}"
        values = [f"{gain['times_as_fast']:.2f}; {100 * gain['share_of_bound']:.0f} %" for gain in gains]
        assert row(told, values) in PAGE


def test_the_share_of_the_peak():
    found = results("peak")["share_of_peak"]
    values = [f"{100 * found[precision]['all_stages']:.0f} %" for precision in BOTH]
    assert row("share of the matrix-product peak, 64 tokens (`peak`)", values) in PAGE


def test_what_the_products_with_the_bases_weights_take_of_a_step():
    found = stored("operators")["profiles"]
    stages = [stage for precision in BOTH for stage in found[precision]]
    base = [100 * stage["shares"]["base"] for stage in stages]
    assert f"take {min(base):.0f} to {max(base):.0f} % of a step" in PAGE


def test_the_switches():
    longer = results("switches")["times_as_long"]
    assert f"| {' | '.join(f'{value:.2f}' for name, value in longer.items() if name != 's3t')} |" in PAGE


def test_the_memory():
    grown = {name: f"{count / 1e9:.2f}" for name, count in results("memory")["grown_bytes"].items()}
    assert row("s3t", [grown[name] for name in ("1 order", "3 orders", "3 orders without cache")]) in PAGE
    assert row("Trainer", [grown["plain, 1 order"], grown["plain, 3 orders"], ""]).replace("|  |", "| |") in PAGE


def test_as_many_repetitions_as_told():
    assert "medians of three repetitions" in PAGE
    assert {results(part)["repetitions"] for part in ("switches", "cache", "peak", "memory")} == {3}


def test_the_cpu_time_of_commands():
    found = json.loads((ROOT / "benchmarks" / "results" / "commands.json").read_text())
    least = [f"{seconds['least']:.2f}" for seconds in found["commands"].values()]
    assert f"| {' | '.join(least)} |" in PAGE
    assert f"{found['rounds']} rounds, load average {found['load_before']:.1f}" in PAGE
    assert f"{found['predict_against_bare']:.2f} times as long as bare" in PAGE


def test_what_threads_cost_and_that_automatic_ones_keep_to_it():
    by_width = {width: max(1, width // WIDTH_A_THREAD) for width in (384, 768)}
    widths = [each for each in stored("together")["widths"]["widths"] if each["width"] in by_width]
    assert len(widths) >= 2
    for each in widths:
        assert each["cpu"][str(by_width[each["width"]])] <= MOST_COST


def test_trainings_at_once():
    cases = [case for case in stored("together")["together"]["cases"] if case["threads"] == "auto"]
    fair = [case for case in cases if case["where"] == "all cores" and case["trainings"] <= 2]
    assert max(case["wall_over_fair_share"] for case in fair) <= 1.1
    assert "as many trainings at once as cores: `threads: auto` takes at most 1.1 of the fair share" in PAGE


def test_texts_that_several_ask_for():
    rates = stored("language")["streams"]["tokens_a_second"]
    told = {name: f"{rate:.0f}" for name, rate in rates.items()}
    assert f"one request {told['one request']}; eight streams at once {told['at once']}, 50 ms apart" in PAGE
    assert f"50 ms apart {told['50 ms apart']}, one after another {told['one after another']}." in PAGE


def test_the_accuracies_by_optimiser_steps():
    points = stored("optimiser_steps")["points"]
    best = {}
    for point in points:
        best[point["labels"]] = max(best.get(point["labels"], 0.0), point["accuracy"])
    few = [point["steps_a_label"] < STEPS_A_LABEL for point in points]
    lost = [100 * (best[point["labels"]] - point["accuracy"]) for point in points]
    below, above = ([loss for loss, is_few in zip(lost, few, strict=True) if is_few == each] for each in (True, False))
    assert f"{min(below):.1f} to {max(below):.1f} points below the best of as many labels with fewer than" in PAGE
    assert f"than {STEPS_A_LABEL:.0f} steps a label, and {min(above):.1f} to {max(above):.1f} from there on" in PAGE


def test_the_ensemble_against_merged_models_and_what_merged_weights_change():
    found = json.loads((ROOT / "benchmarks" / "results" / "ensemble.json").read_text())
    rows, changed = table_rows(found)[:5], table_rows(found)[5:]
    assert [told for told in rows if told not in PAGE] == []
    single, reduced = (row.split(" | ")[1:3] for row in changed[:2])
    told = f"changes a probability by at most {single[0]} in float32, {reduced[0]} in bfloat16, and no label."
    assert told in PAGE
    assert {single[1], reduced[1]} == {"0.0 %"}
    loads = [part["load_before"] for each in found.values() for part in each["measured"].values()]
    assert f"shared with others at loads of {min(loads):.1f} to {max(loads):.1f}" in PAGE


def test_simulated_forests_and_the_choice_of_what_to_grow():
    found = stored("forests")
    ours, chosen = found["simulation"], found["choice"]
    assert f"{ours['s3t_seconds']:.0f} s; {ours['times_as_fast']:.1f} times as fast" in PAGE
    milliseconds = (chosen["median_milliseconds"], chosen["longest_milliseconds"])
    assert f"{milliseconds[0]:.0f}; {milliseconds[1]:.0f} ms" in PAGE
    assert f"(load {found['load_before']:.0f})" in PAGE
    assert ours["s3t_seconds"] < 60
    assert milliseconds[1] < 50
    exact, simulated = ours["cost"]["exact"], ours["cost"]["s3t"]
    assert abs(simulated["mean"] - exact) < 4 * simulated["standard_error"]


PROCESSORS = {"AMD EPYC": "AMD EPYC", "Intel(R) Xeon(R) Processor": "Intel Xeon"}


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
def test_every_result_is_told_with_its_processor(name):
    """Beside the benchmark's name: in a sentence that begins with it, or in a row of a table."""
    told = re.findall(rf"`{name.partition('-')[0]}[^`]*`[,( ]+(.{{0,90}})", PAGE)
    for processor in processors_in(stored(name)):
        assert any(PROCESSORS[processor] in place for place in told), (processor, told)


def processors_in(value):
    """Processors that a result names, at any depth."""
    if isinstance(value, dict):
        own = {value["processor"]} if "processor" in value else set()
        return own.union(*map(processors_in, value.values()))
    return set().union(*map(processors_in, value)) if isinstance(value, list) else set()


def test_the_memory_of_llamas():
    found = stored("llama_memory")
    sizes = found["computed"]["models"]
    for base, needed in sizes["8B"]["bits"].items():
        pairs = [needed[part].values() for part in ("activations", "total")]
        cells = [gigabytes(needed["base"]), *("; ".join(map(gigabytes, pair)) for pair in pairs)]
        assert row(base, [*cells, "; ".join(smallest_cards(needed))]) in PAGE
    assert "of 1B fits 24 GB in every case, one of 13B in 8bit and 4bit with `checkpointing`; else 13B needs 80" in PAGE
    assert all(smallest_cards(needed) == ["24", "24"] for needed in sizes["1B"]["bits"].values())
    others = {base: smallest_cards(needed) for base, needed in sizes["13B"]["bits"].items()}
    assert others == {"bfloat16": ["80", "80"], "8bit": ["80", "24"], "4bit": ["80", "24"]}
    measured = found["measured"]["cases"]
    assert all(case["measured"]["tensors"] == case["computed"]["base"] for case in measured)
    more = {part: [case["measured"][part] / case["computed"][part] for case in measured] for part in ("base", "pass")}
    assert f"by the base {min(more['base']):.2f} to {max(more['base']):.2f} times as much" in PAGE
    assert f"by a pass {min(more['pass']):.2f} to {max(more['pass']):.2f} times" in PAGE


def smallest_cards(needed):
    """GB of the smallest card that fits, without and with checkpointing."""
    return [next(iter(cards), "neither").removesuffix(" GB") for cards in needed["fits"].values()]


def gigabytes(size):
    return f"{size / 1e9:.1f}"


def test_serving():
    found = stored("service")["throughput"]
    assert f"`service`, AMD EPYC, load {found['load_before']:.1f}." in PAGE
    for name in ("banking77", "SST-2"):
        cases = {(case["connections"], case["texts"]): case["over"] for case in found[name]}
        assert [*cases] == [(1, 1), (1, 16), (8, 1), (8, 16), (64, 1), (64, 16)]
        for models in ("three models", "one model"):
            assert row(f"{name}, {models}", [f"{over[models]:.2f}" for over in cases.values()]) in PAGE
    worst = min(case["over"]["three models"] for name in ("banking77", "SST-2") for case in found[name])
    assert f"at least {worst:.2f} times as many texts" in PAGE


def test_a_steady_rate_of_deletions():
    found = stored("steady_rate")
    for case in found.values():
        answers = case["answers"]
        refused = sum(count for status, count in answers.items() if status != "200")
        dead = f"{case['share_dead']:.1%}"
        times = [f"{case[name][share]:,.0f}" for name in ("effective_ms", "erased_ms") for share in ("50", "99")]
        label = f"{case['rate']:g}, {case['head']}"
        cells = [
            f"{case['deletions']:,}",
            f"{case['mean_depth']:.1f}",
            dead,
            f"{refused:,} of {sum(answers.values()):,}",
        ]
        assert row(label, [*cells, "; ".join(times[:2]), "; ".join(times[2:]), f"{case['stages_repaired']:,}"]) in PAGE
    slowest = {name: case["latency_ms"]["99"] / 1000 for name, case in found.items()}
    assert f"{slowest['1, ridge']:.1f} s at the 99th percentile, else {max(slowest['1'], slowest['3']):.2f}." in PAGE


def test_serving_while_people_are_deleted():
    found = stored("service")["load"]
    before, during, after = (found[name] for name in ("before", "during", "after"))
    counts = ("errors", "stale", "mixed")
    label = (
        f"{during['answers']:,} requests, {during['deletions']:,} deletions, {found['stages_repaired']} stages repaired"
    )
    times = [f"{during['ms'][share]:.0f}" for share in ("50", "99")]
    assert row(label, [*(str(during[name]) for name in counts), *times]) in PAGE
    label = f"{before['answers'] + after['answers']:,} requests without deletions, before and after"
    times = [f"{before['ms'][share]:.0f} and {after['ms'][share]:.0f}" for share in ("50", "99")]
    assert row(label, [*(str(before[name] + after[name]) for name in counts), *times]) in PAGE
    assert f"The p99 is {found['p99_during_over_without']:.2f} times that without deletions" in PAGE
    effective = found["accepted_to_effective_ms"]
    assert f"it takes {effective['50']:.0f} ms in the median and {effective['99']:.0f} at the 99th percentile" in PAGE
    assert f"(`--part load`, {found['machine']['processor']}, load {found['load_before']:.1f})" in PAGE
    assert f"`S3T_REPAIR_NICE={found['repair_nice']}`" in PAGE
    assert f"of {during['answers']:,} requests during {during['deletions']:,} deletions" in README
    assert (
        f"after {effective['50']:.0f} ms in the median, and {effective['99']:.0f} ms at the 99th percentile" in README
    )
    assert not any(during[name] for name in counts)


def test_ridge():
    parts = [stored(f"ridge-{part}") for part in ("effective", "answers", "million", "opponent")]
    small, answers, large, opponent = parts
    worst, training, deletions = answers["worst"], large["training"], large["deletions"]
    loads = [each[when] for each in parts for when in ("load_before", "load_after")]
    told = " ".join(PAGE.split())
    for shown in (
        f"`ridge`, AMD EPYC, loads of {min(loads):.1f} to {max(loads):.1f}",
        f"{small['records']:,} records, {small['slices']} slices",
        f"effective after {1000 * small['effective']:.0f} ms and erased after {1000 * small['erased']:.0f} ms",
        f"its repair takes {small['repair']:.1f}, a bare pass over its slice {small['pass_over_a_slice']:.1f}",
        f"the next answer {small['answer']:.1f}",
        f"at most {worst['many']:.2f} times a bare pass for 1,000 inputs, {worst['single']:.2f} for one",
        f"{large['records']:,} records, {large['labels']:,} labels, {large['features']:,} features",
        f"training takes {training['seconds']:.0f} CPU seconds and {training['peak_bytes'] / 1e9:.1f} GB",
        f"the next answer takes {deletions['answer']:.1f}, repair {deletions['repair']:.1f}",
        f"a bare pass over its slice {large['pass_over_a_slice']['seconds']:.1f}",
    ):
        assert shown in told
    for name, found in opponent["data_sets"].items():
        ways = [found["ways"][way] for way in ("s3t", "logistic")]
        shown = [f"{way['training']:.0f}, {way['deletion']:.1f}, {way['accuracy']:.3f}" for way in ways]
        assert f"- {TITLES[name]}: {shown[0]}; {shown[1]}" in PAGE


def test_the_gpus():
    files = sorted(RESULTS.glob("gpu-*.json"))
    assert len(files) == 2
    for found in (each for path in files for each in json.loads(path.read_text()).values()):
        ways = [found[variant] for variant in ("competent", "s3t")]
        shown = [f"{way['records_a_second']:,.0f} ({100 * way['share_of_peak']:.1f} %)" for way in ways]
        assert row(found["device"].split()[1], [*shown, f"{found['times_as_fast']:.2f}"]) in PAGE


def test_the_accuracy_and_where_a_frozen_model_is_better():
    readme = (ROOT / "README.md").read_text()
    for name, title in {"banking77": "banking77", "sst2": "SST-2", "cola": "CoLA", "cifar10": "CIFAR-10"}.items():
        found = stored("data_sets-accuracy")["data_sets"][name]
        scores, seconds, above = found["scores"], found["seconds"], found["points_above"]
        shown = [f"{scores[each]:.3f}" for each in ("frozen", "s3t", COMPETENT)]
        shown += [f"{above['mean']:+.1f} ± {above['standard_error']:.1f}"]
        shown += [f"{scores[each]:.3f}" if each in scores else "" for each in (FIRST, WHOLE)]
        shown += [", ".join(f"{seconds[each]:.0f}" for each in (FROZEN, "s3t", COMPETENT)) + " s"]
        assert row(title, shown).replace("|  |", "| |") in PAGE
        assert (scores["frozen"] > scores["s3t"]) == (name != "sst2")
        assert above["mean"] > -0.5  # points
        if name in ("banking77", "sst2"):
            assert f"{shown[0]} against {shown[1]}" in readme
