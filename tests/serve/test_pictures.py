"""Pictures and words of the page, without a run."""

import re

import pytest

from s3t.core import FixedOrders, Inventory, Place, Stage, stages_of
from s3t.ledger import DepthChange
from s3t.orders import Setting, cyclic
from s3t.results.base import utc
from s3t.results.log import LogEntry
from s3t.results.state import Forecast
from s3t.run.reporting import shards_of
from s3t_server.page.board import repaired_inventory
from s3t_server.page.pictures import MOST_CHAINS, WORDS, cells_of, chains_picture, depths_picture
from s3t_server.page.views import ahead, depths_over_time, health, steps_of


def inventory(shards=2, slices=3, budget=3, hit=()):
    """An inventory whose stages above some slices are gone."""
    orders = tuple(tuple(cyclic(Setting(slices=slices, budget=budget))) for _ in range(shards))
    gone = set(hit)
    alive = {each: "k" for each in stages_of(orders) if not any((each.shard, index) in gone for index in each.prefix)}
    records = {Place(shard, index): 5 for shard in range(shards) for index in range(slices)}
    return Inventory(generation=0, growth=FixedOrders(orders), records=records, alive=alive)


def cells(picture):
    """Titles of a picture's cells by what they are."""
    return re.findall(r'<g class="cell (\w+)"><title>(.*?)</title>', str(picture))


def test_every_cell_says_what_it_is_by_class_and_by_words():
    (shard,), training = shards_of(inventory(hit=[(0, 1)]), [0]), {Stage(0, (1,))}
    drawn = [["live", "dead", "dead"], ["training", "dead", "dead"], ["serving", "serving", "dead"]]
    assert [cells_of(shard, chain, training) for chain in shard.sequences] == drawn
    picture = chains_picture(shard, training, longest=3)
    found = cells(picture)
    assert [cell for cell, _ in found] == [cell for row in drawn for cell in row]
    assert all(title.endswith(WORDS[cell]) for cell, title in found)
    assert [title for cell, title in found if cell == "training"] == ["slice 1: being repaired"]
    (described,) = re.findall(r"<desc.*?>(.*?)</desc>", str(chains_picture(shard, longest=3)))
    assert described == "3 chains. 0 1 2: 1 of 3 live. 1 2 0: 0 of 3 live. 2 0 1: 2 of 3 live, serves"


@pytest.mark.parametrize("slices", [2, 16, 17, 256])
def test_chains_of_any_length_are_drawn_in_the_room_of_a_telephone(slices):
    wide = inventory(shards=1, slices=slices, budget=2, hit=[(0, slices // 2)])
    (shard,) = shards_of(wide, [0])
    picture = chains_picture(shard, wide.missing()[:1], longest=slices)
    (width,) = re.findall(r' width="(\d+)" height', str(picture))[:1]
    assert int(width) <= 360
    assert len(cells(picture)) <= (2 * slices if slices <= 16 else 6)
    for x, w in re.findall(r'<rect x="([\d.]+)".*? width="([\d.]+)"', str(picture)):
        assert 0 <= float(x) <= float(x) + float(w) <= int(width) + 1


def test_of_many_chains_the_one_that_serves_is_drawn():
    (shard,) = shards_of(inventory(slices=30, budget=30, hit=[(0, 0)]), [0])
    assert len(shard.sequences) > MOST_CHAINS
    last = shard.model_copy(update={"serving": shard.sequences[-1]})
    assert str(chains_picture(last, longest=30)).count('class="mark"') == 1


def points(picture, kind):
    (text,) = re.findall(rf'class="{kind}" points="(.*?)"', str(picture))
    return [tuple(map(float, pair.split(","))) for pair in text.split()]


def test_the_line_of_depths_is_a_stair_of_means():
    picture = depths_picture([0, 50, 100], [(4.0, 4, 4), (2.0, 1, 3)], most=4)
    assert points(picture, "line") == [(0, 0), (300, 0), (300, 50), (600, 50)]
    assert (300, 25) in points(picture, "area")
    assert (600, 75) in points(picture, "area")


def change(at, shard, before, after):
    return DepthChange(changed_at=at, shard=shard, depth_before=before, depth=after)


CHANGES = [change(10, 0, 4, 2), change(1000, 1, 4, 1), change(5000, 0, 2, 4)]


def test_depths_before_the_first_change_are_those_that_it_changed_and_the_upper_edge_is_the_deepest():
    for most in (4, 2):
        shown = depths_over_time(CHANGES, [4, 1], now=10_000, span="all", most=most)
        line = points(shown["picture"], "line")
        assert shown["most"] == 4
        assert line[0][1] == 0  # both had 4
        assert line[-1] == (600, 37.5)  # a mean of 2.5
        assert shown["rows"][0] is CHANGES[-1]


def test_only_changes_of_the_span_are_shown_from_the_state_before_it():
    shown = depths_over_time(CHANGES, [4, 1], now=7_000, span="hour", most=4)
    assert [each.changed_at for each in shown["rows"]] == [5000]
    assert points(shown["picture"], "line")[0][1] == 100 * (1 - 1.5 / 4)  # 2 and 1 slices
    assert depths_over_time(CHANGES, [4, 1], now=50_000, span="hour", most=4)["picture"] is None
    assert depths_over_time([], [4, 1], now=50_000, span="all", most=4)["picture"] is None


def test_thousands_of_changes_make_a_picture_of_bounded_size():
    many = [change(number, 0, number % 2, 1 - number % 2) for number in range(10_000)]
    shown = depths_over_time(many, [0], now=10_001, span="all", most=1)
    assert len(str(shown["picture"])) < 60_000
    assert points(shown["picture"], "line")[-1][1] == 100


def test_what_lies_ahead_is_told_soonest_first_and_never_is_never():
    dies = {"next_shard_dies": 20.0, "next_shard_dies_between": (10.0, 31.0), "all_shards_die": None}
    falls = {2: (9.0, (3.0, 15.0)), 3: (4.0, (2.0, 7.0)), 4: (1.0, (1.0, 1.0))}
    below, between = ({depth: each[place] for depth, each in falls.items()} for place in (0, 1))
    forecast = Forecast(living_shards=3, depth_falls_below=below, depth_falls_below_between=between, **dies)
    assert [expected for _, expected, _ in ahead(forecast)] == [1.0, 4.0, 9.0, 20.0, None]
    assert ahead(None) == ahead(forecast.model_copy(update={"living_shards": 0})) == []


def test_a_repaired_inventory_lacks_nothing():
    hit = inventory(hit=[(0, 0), (1, 2)])
    assert hit.missing() != ()
    assert repaired_inventory(hit).missing() == ()
    assert repaired_inventory(hit).depths() == (3, 3)


def test_a_deletion_is_told_by_its_steps():
    entry = LogEntry(generation=3, records=1, received_at=5.0, accepted_at=5.02, effective_at=None, erased_at=None)
    told = [("received", utc(5.0), "+0 ms"), ("accepted", utc(5.02), "+20 ms")]
    assert steps_of(entry) == [*told, ("effective", None, ""), ("erased", None, "")]


def test_one_shard_is_spoken_of_as_one():
    assert health([2], 3) == "The one shard answers; 2.0 of 3 slices in the mean."
