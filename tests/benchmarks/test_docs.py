"""What the docs tell of training, serving and memory is what the committed results hold."""

import json
import re
from inspect import isgeneratorfunction
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
PROCESSORS = {"AMD EPYC": "AMD EPYC", "Intel(R) Xeon(R) Processor": "Intel Xeon"}


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def row(what, values):
    return f"| {what} | {' | '.join(values)} |".replace("|  |", "| |")


def listed(numbers, form=".2f"):
    return ", ".join(f"{number:{form}}" for number in numbers)


def ends(numbers, form=".1f"):
    return f"{min(numbers):{form}} to {max(numbers):{form}}"


def points(found):
    return f"{found['mean']:+.1f} ± {found['standard_error']:.1f}"


def data_sets_against_the_competent_loop_and_the_plain_procedure():
    found = stored("data_sets")
    assert len(found["data_sets"]) == 5
    names = ("s3t", "competent", "plain without dropout")
    for each in found["data_sets"].values():
        seconds, scores = (listed((each[what][name] for name in names), form) for what, form in FORMS)
        fast = f"{each['times_as_fast']:.2f}; {each['times_as_fast_as_plain']:.2f}"
        stages, above = listed(each["times_as_fast_by_stage"]), points(each["points_above"])
        yield f"| {fast} | {stages} | {seconds} s | {scores} | {above} |"
    loads = [run["load_before"] for runs in found["runs"].values() for one in runs for run in one.values()]
    yield f"load averages of {ends(loads)}"


FORMS = (("seconds", ".1f"), ("scores", ".3f"))


def buckets():
    runs = stored("buckets")["runs"]
    assert {run["opening and answering"] for run in runs} == {run["until effective"] for run in runs} == {0}
    sizes, slices = listed([run["objects"] for run in runs], ","), [run["slices"] for run in runs]
    yield f"in a bucket of {sizes} objects, of {ends(slices, ',')} slices"
    yield f"until it is erased at most {max(max(run['until erased']) for run in runs)}"
    yield f"init makes {runs[-1]['init']['requests']:,} and takes {runs[-1]['init']['peak_bytes'] / 1e9:.2f} GB"


def additions_and_a_table_that_is_followed():
    found = stored("adding")
    few, many = found["runs"]
    assert (found["few"], few["records"], many["records"]) == (100, 10_000, 1_000_000)
    assert max(few["encode_ms"], many["encode_ms"]) < 2.5
    yield f"{few['add_ms']:.0f} and {many['add_ms']:.0f} ms, of which encoding takes 2"
    followed = f"{many['sync_seconds']:.0f} s and {many['sync_peak_bytes'] / 1e9:.1f} GB"
    alone = f"{many['reading_seconds']:.1f} s and its checks {many['checking_seconds']:.1f}"
    yield f"{followed}, where reading the file takes {alone}"


def many_additions_are_learned_as_one_is():
    one, many = stored("adding-learning")["runs"]
    assert (one["additions"], many["additions"]) == (1, 20)
    yield f"in {one['learn']:.0f} and {many['learn']:.0f} CPU seconds"
    yield f"a repair then takes {one['repair']:.0f} and {many['repair']:.0f}"


def deep_models_switches_and_repetitions():
    deep, parts = stored("deep"), ("switches", "cache", "peak", "memory")
    assert len(deep["runs"]) == 1
    yield f"{deep['times_as_fast']:.2f} times as fast as the loop."
    longer = stored("training-switches")["times_as_long"]
    yield f"| {' | '.join(f'{value:.2f}' for name, value in longer.items() if name != 's3t')} |"
    assert {stored(f"training-{part}")["repetitions"] for part in parts} == {3}
    yield "medians of three repetitions"


def the_cache_against_its_bound_and_the_share_of_the_peak():
    found = stored("training-cache")["cache"]
    for what in ("stage 1", "all stages"):
        gains = [found[precision][what] for precision in BOTH]
        values = [f"{gain['times_as_fast']:.2f}; {100 * gain['share_of_bound']:.0f} %" for gain in gains]
        yield row(f"cache, {what}: times as fast; share of the bound {gains[0]['bound']:.3g}", values)
    peak = stored("training-peak")["share_of_peak"]
    values = [f"{100 * peak[precision]['all_stages']:.0f} %" for precision in BOTH]
    yield row("share of the matrix-product peak, 64 tokens (`peak`)", values)
    stages = [stage for precision in BOTH for stage in stored("operators")["profiles"][precision]]
    yield f"take {ends([100 * stage['shares']['base'] for stage in stages], '.0f')} % of a step"


def the_memory():
    grown = {name: f"{count / 1e9:.2f}" for name, count in stored("training-memory")["grown_bytes"].items()}
    yield row("s3t", [grown[name] for name in ("1 order", "3 orders", "3 orders without cache")])
    yield row("Trainer", [grown["plain, 1 order"], grown["plain, 3 orders"], ""])


def the_cpu_time_of_commands():
    found = stored("commands")
    least = [f"{seconds['least']:.2f}" for seconds in found["commands"].values()]
    yield f"| {' | '.join(least)} |"
    yield f"{found['rounds']} rounds, load average {found['load_before']:.1f}"
    yield f"{found['predict_against_bare']:.2f} times as long as bare"


def trainings_at_once_and_what_threads_cost():
    found = stored("together")
    by_width = {width: max(1, width // WIDTH_A_THREAD) for width in (384, 768)}
    widths = [each for each in found["widths"]["widths"] if each["width"] in by_width]
    assert len(widths) >= 2
    assert all(each["cpu"][str(by_width[each["width"]])] <= MOST_COST for each in widths)
    cases = [case for case in found["together"]["cases"] if case["threads"] == "auto"]
    fair = [case for case in cases if case["where"] == "all cores" and case["trainings"] <= 2]
    assert max(case["wall_over_fair_share"] for case in fair) <= 1.1
    yield "as many trainings at once as cores: `threads: auto` takes at most 1.1 of the fair share"


def texts_that_several_ask_for():
    told = {name: f"{rate:.0f}" for name, rate in stored("language")["streams"]["tokens_a_second"].items()}
    yield f"one request {told['one request']}; eight streams at once {told['at once']}, 50 ms apart"
    yield f"50 ms apart {told['50 ms apart']}, one after another {told['one after another']}."


def accuracies_by_optimiser_steps():
    measured = stored("optimiser_steps")["points"]
    best = {}
    for point in measured:
        best[point["labels"]] = max(best.get(point["labels"], 0.0), point["accuracy"])
    lost = {True: [], False: []}
    for point in measured:
        lost[point["steps_a_label"] < STEPS_A_LABEL].append(100 * (best[point["labels"]] - point["accuracy"]))
    yield f"{ends(lost[True])} points below the best of as many labels with fewer than"
    yield f"than {STEPS_A_LABEL:.0f} steps a label, and {ends(lost[False])} from there on"


def the_ensemble_against_merged_models_and_what_merged_weights_change():
    found = stored("ensemble")
    yield from table_rows(found)[:5]
    single, reduced = (row.split(" | ")[1:3] for row in table_rows(found)[5:7])
    yield f"changes a probability by at most {single[0]} in float32, {reduced[0]} in bfloat16, and no label."
    assert {single[1], reduced[1]} == {"0.0 %"}
    loads = [part["load_before"] for each in found.values() for part in each["measured"].values()]
    yield f"shared with others at loads of {ends(loads)}"


def simulated_forests_and_the_choice_of_what_to_grow():
    found = stored("forests")
    ours, chosen = found["simulation"], found["choice"]
    median, longest = (chosen[f"{which}_milliseconds"] for which in ("median", "longest"))
    yield f"{ours['s3t_seconds']:.0f} s; {ours['times_as_fast']:.1f} times as fast"
    yield f"{median:.0f}; {longest:.0f} ms"
    yield f"(load {found['load_before']:.0f})"
    assert ours["s3t_seconds"] < 60
    assert longest < 50
    simulated = ours["cost"]["s3t"]
    assert abs(simulated["mean"] - ours["cost"]["exact"]) < 4 * simulated["standard_error"]


def the_memory_of_llamas():
    found = stored("llama_memory")
    sizes = found["computed"]["models"]
    for base, needed in sizes["8B"]["bits"].items():
        pairs = [needed[part].values() for part in ("activations", "total")]
        cells = [gigabytes(needed["base"]), *("; ".join(map(gigabytes, pair)) for pair in pairs)]
        yield row(base, [*cells, "; ".join(smallest_cards(needed))])
    yield "of 1B fits 24 GB in every case, one of 13B in 8bit and 4bit with `checkpointing`; else 13B needs 80"
    assert all(smallest_cards(needed) == ["24", "24"] for needed in sizes["1B"]["bits"].values())
    others = {base: smallest_cards(needed) for base, needed in sizes["13B"]["bits"].items()}
    assert others == {"bfloat16": ["80", "80"], "8bit": ["80", "24"], "4bit": ["80", "24"]}
    measured = found["measured"]["cases"]
    assert all(case["measured"]["tensors"] == case["computed"]["base"] for case in measured)
    more = {part: [case["measured"][part] / case["computed"][part] for case in measured] for part in ("base", "pass")}
    yield f"by the base {ends(more['base'], '.2f')} times as much"
    yield f"by a pass {ends(more['pass'], '.2f')} times"


def smallest_cards(needed):
    """GB of the smallest card that fits, without and with checkpointing."""
    return [next(iter(cards), "neither").removesuffix(" GB") for cards in needed["fits"].values()]


def gigabytes(size):
    return f"{size / 1e9:.1f}"


def serving():
    found, worst = stored("service")["throughput"], []
    yield f"`service`, AMD EPYC, load {found['load_before']:.1f}."
    for name in ("banking77", "SST-2"):
        cases = {(case["connections"], case["texts"]): case["over"] for case in found[name]}
        assert [*cases] == [(1, 1), (1, 16), (8, 1), (8, 16), (64, 1), (64, 16)]
        worst += [over["three models"] for over in cases.values()]
        for models in ("three models", "one model"):
            yield row(f"{name}, {models}", [f"{over[models]:.2f}" for over in cases.values()])
    yield f"at least {min(worst):.2f} times as many texts"


def a_steady_rate_of_deletions():
    found = stored("steady_rate")
    for case in found.values():
        answers = case["answers"]
        refused = sum(count for status, count in answers.items() if status != "200")
        each = [[f"{case[name][share]:,.0f}" for share in ("50", "99")] for name in ("effective_ms", "erased_ms")]
        counts = [f"{case['deletions']:,}", f"{case['mean_depth']:.1f}", f"{case['share_dead']:.1%}"]
        counts += [f"{refused:,} of {sum(answers.values()):,}"]
        chains = f"{case['repair']['depth']} + {case['repair']['spares']}"
        yield row(
            f"{case['rate']:g}, {case['head']}",
            [chains, *counts, *map("; ".join, each), f"{case['stages_repaired']:,}"],
        )
    slowest = {name: case["latency_ms"]["99"] / 1000 for name, case in found.items()}
    yield f"{slowest['1, ridge']:.1f} s at the 99th percentile, else {max(slowest['1'], slowest['3']):.2f}."


def serving_while_people_are_deleted():
    found, counts = stored("service")["load"], ("errors", "stale", "mixed")
    before, during, after = (found[name] for name in ("before", "during", "after"))
    label = f"{during['answers']:,} requests, {during['deletions']:,} deletions, "
    times = [f"{during['ms'][share]:.0f}" for share in ("50", "99")]
    yield row(f"{label}{found['stages_repaired']} stages repaired", [*(str(during[name]) for name in counts), *times])
    label = f"{before['answers'] + after['answers']:,} requests without deletions, before and after"
    times = [f"{before['ms'][share]:.0f} and {after['ms'][share]:.0f}" for share in ("50", "99")]
    yield row(label, [*(str(before[name] + after[name]) for name in counts), *times])
    yield f"The p99 is {found['p99_during_over_without']:.2f} times that without deletions"
    median, late = (f"{found['accepted_to_effective_ms'][share]:.0f}" for share in ("50", "99"))
    yield f"it takes {median} ms in the median and {late} at the 99th percentile"
    yield f"(`--part load`, {found['machine']['processor']}, load {found['load_before']:.1f})"
    yield f"`S3T_REPAIR_NICE={found['repair_nice']}`"
    assert f"of {during['answers']:,} requests during {during['deletions']:,} deletions" in README
    assert f"after {median} ms in the median, and {late} ms at the 99th percentile" in README
    assert not any(during[name] for name in counts)


def ridge():
    parts = [stored(f"ridge-{part}") for part in ("effective", "answers", "million", "opponent")]
    small, answers, large, opponent = parts
    worst, training, deletions = answers["worst"], large["training"], large["deletions"]
    loads = [each[when] for each in parts for when in ("load_before", "load_after")]
    yield f"`ridge`, AMD EPYC, loads of {ends(loads)}"
    yield f"{small['records']:,} records, {small['slices']} slices"
    yield f"effective after {1000 * small['effective']:.0f} ms and erased after {1000 * small['erased']:.0f} ms"
    yield f"its repair takes {small['repair']:.1f}, a bare pass over its slice {small['pass_over_a_slice']:.1f}"
    yield f"the next answer {small['answer']:.1f}"
    yield f"at most {worst['many']:.2f} times a bare pass for 1,000 inputs, {worst['single']:.2f} for one"
    yield f"{large['records']:,} records, {large['labels']:,} labels, {large['features']:,} features"
    yield f"training takes {training['seconds']:.0f} CPU seconds and {training['peak_bytes'] / 1e9:.1f} GB"
    yield f"the next answer takes {deletions['answer']:.1f}, repair {deletions['repair']:.1f}"
    yield f"a bare pass over its slice {large['pass_over_a_slice']['seconds']:.1f}"
    for name, found in opponent["data_sets"].items():
        ways = [found["ways"][way] for way in ("s3t", "logistic")]
        shown = [f"{way['training']:.0f}, {way['deletion']:.1f}, {way['accuracy']:.3f}" for way in ways]
        yield f"- {TITLES[name]}: {shown[0]}; {shown[1]}"


def the_gpus():
    files = sorted(path.stem for path in RESULTS.glob("gpu-*.json"))
    assert len(files) == 2
    for found in (each for name in files for each in stored(name).values()):
        ways = [found[variant] for variant in ("competent", "s3t")]
        shown = [f"{way['records_a_second']:,.0f} ({100 * way['share_of_peak']:.1f} %)" for way in ways]
        yield row(found["device"].split()[1], [*shown, f"{found['times_as_fast']:.2f}"])


def the_accuracy_and_where_a_frozen_model_is_better():
    for name in ("banking77", "sst2", "cola", "cifar10"):
        found = stored("data_sets-accuracy")["data_sets"][name]
        scores, seconds, above = found["scores"], found["seconds"], found["points_above"]
        shown = [f"{scores[each]:.3f}" for each in (FROZEN, "s3t", COMPETENT)]
        assert (scores[FROZEN] > scores["s3t"]) == (name != "sst2")
        assert above["mean"] > -0.5  # points
        if name in ("banking77", "sst2"):
            assert f"{shown[0]} against {shown[1]}" in README
        shown += [points(above), *(f"{scores[each]:.3f}" if each in scores else "" for each in (FIRST, WHOLE))]
        yield row(TITLES[name], [*shown, f"{listed((seconds[each] for each in (FROZEN, 's3t', COMPETENT)), '.0f')} s"])


SECTIONS = [each for each in list(vars().values()) if isgeneratorfunction(each)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_the_page_tells(section):
    assert [told for told in section() if told not in PAGE] == []


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
def test_every_result_is_told_with_its_processor(name):
    """Beside the benchmark's name: in a sentence that begins with it, or in a row of a table."""
    told = re.findall(rf"`{name.partition('-')[0]}[^`]*`[,( ]+(.{{0,90}})", PAGE)
    for processor in set(re.findall(r'"processor": "([^"]+)"', (RESULTS / f"{name}.json").read_text())):
        assert any(PROCESSORS[processor] in place for place in told), (processor, told)


def test_the_docs_tell_how_much_faster_several_workers_are():
    page = " ".join((ROOT / "docs" / "cluster.md").read_text().split())
    measured = stored("scaleout")["measured"]
    alone = measured["stages of seconds"]["one worker"]
    assert f"18 stages of {alone['a stage']:.1f} s by one worker" in page
    for name, times in measured["stages of seconds"].items():
        told = [f"{times['training']:.1f}", f"{alone['training'] / times['training']:.2f}"]
        assert re.search(rf"\| {name}[^|]* \| {re.escape(' | '.join(told))} \|", page), name
    nothing = [f"{times['a stage'] * 1000:.0f} ms" for times in measured["stages of nothing"].values()]
    assert "one worker takes {}, two processes {}, two actors {}.".format(*nothing) in page
