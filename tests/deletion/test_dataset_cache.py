"""Copies in the cache of `datasets`: found by the dataset, removed with what lies beside them, and nothing else is."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import datasets
import pandas as pd
import pytest

from s3t.deletion.dataset_cache import cached_copies, remove_copies
from s3t.ledger import Copy

CANARY = "canary-4711"
ROWS = [{"id": "r0", "text": f"{CANARY} a"}, {"id": "r1", "text": "another text"}]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "home" / "datasets")
    datasets.disable_progress_bars()
    return tmp_path / "home" / "datasets"


def loaded(folder, cache, name="rows", **options):
    path = folder / f"{name}.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    return datasets.load_dataset("csv", data_files=str(path), cache_dir=str(cache), split="train", **options)


def holding(folder):
    """Files below with the canary in them."""
    return [path for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def paths(copies):
    return [copy.path for copy in copies]


def copy_of(path, cache, host=None):
    return Copy(path=path, cache=cache, host=host or platform.node())


def test_a_loaded_dataset_has_its_copies_and_they_go_as_a_whole(tmp_path, cache):
    data = loaded(tmp_path, cache)
    copies = cached_copies(data)
    assert paths(copies) == holding(cache)
    assert all(path.is_absolute() and path.suffix == ".arrow" for path in paths(copies))
    assert remove_copies(copies) == ()
    assert holding(cache) == []
    assert remove_copies(copies) == ()
    assert data[0]["text"] == ROWS[0]["text"]  # who has it open reads on
    assert loaded(tmp_path, cache)[1]["id"] == "r1"  # and the cache can be made again


def test_what_map_and_filter_left_beside_it_goes_too(tmp_path, cache):
    data = loaded(tmp_path, cache)
    data.map(lambda row: {"text": row["text"].upper()[:3] + row["text"]})
    data.filter(lambda row: row["id"] == "r0").map(lambda row: {"more": row["text"]}, num_proc=1)
    assert len(holding(cache)) >= 3
    assert remove_copies(cached_copies(data)) == ()
    assert holding(cache) == []


def test_a_mapped_dataset_s_source_goes_too(tmp_path, cache):
    mapped = loaded(tmp_path, cache).map(lambda row: {"text": row["text"] + "!"})
    copies = cached_copies(mapped)
    assert [path.name.partition("-")[0] for path in paths(copies)] == ["cache"]
    assert len(holding(cache)) == 2
    remove_copies(copies)
    assert holding(cache) == []


def test_a_killed_map_s_file_goes_too(tmp_path, cache):
    copies = cached_copies(loaded(tmp_path, cache))
    (copies[0].path.parent / "tmp0a1b2c3d").write_text(CANARY)
    remove_copies(copies)
    assert holding(cache) == []


def test_joined_datasets_have_the_copies_of_each(tmp_path, cache):
    parts = [loaded(tmp_path, cache, "one"), loaded(tmp_path, cache, "two")]
    copies = cached_copies(datasets.concatenate_datasets(parts))
    assert len(copies) == 2
    remove_copies(copies)
    assert holding(cache) == []


def test_another_dataset_of_the_cache_stays(tmp_path, cache):
    copies = cached_copies(loaded(tmp_path, cache, "one"))
    other = cached_copies(loaded(tmp_path, cache, "two"))
    remove_copies(copies)
    assert holding(cache) == paths(other)


def test_copies_that_are_gone_are_no_error(cache, tmp_path):
    assert remove_copies([copy_of(cache / "x" / "y.arrow", cache)]) == ()
    copies = cached_copies(loaded(tmp_path, cache))
    copies[0].path.unlink()
    assert remove_copies(copies) == ()


def test_it_is_the_cache_of_init_that_counts(tmp_path, cache, monkeypatch):
    """Who deletes may have another home."""
    copies = cached_copies(loaded(tmp_path, cache))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "another home" / "datasets")
    assert remove_copies(copies) == ()
    assert holding(cache) == []


def test_what_only_another_host_can_see_is_left_to_it(tmp_path, cache):
    away = tmp_path / "a home that is not here" / "datasets"
    elsewhere = copy_of(away / "rows" / "rows.arrow", away, host="another-host")
    removed_with_its_cache = copy_of(away / "rows" / "rows.arrow", away)
    assert remove_copies([elsewhere, removed_with_its_cache]) == (elsewhere,)
    away.mkdir(parents=True)  # a home that both have
    assert remove_copies([elsewhere]) == ()


def test_after_a_crash_half_way_the_rest_still_goes(tmp_path, cache, monkeypatch):
    data = loaded(tmp_path, cache)
    data.map(lambda row: {"text": row["text"] + "!"})
    copies = cached_copies(data)
    with monkeypatch.context() as crash:
        crash.setattr(os, "unlink", refuse_after(1))
        with pytest.raises(OSError, match="no more"):
            remove_copies(copies)
    assert len(holding(cache)) == 1
    remove_copies(copies)
    assert holding(cache) == []


def refuse_after(count):
    real, seen = os.unlink, []

    def unlink(path, *, dir_fd=None):
        seen.append(path)
        if len(seen) > count:
            raise OSError("no more")
        real(path, dir_fd=dir_fd)

    return unlink


@pytest.mark.parametrize(
    "make",
    [
        lambda _: pd.DataFrame(ROWS),
        lambda _: "rows.csv",
        lambda _: datasets.Dataset.from_list(ROWS),
        lambda folder: loaded(folder, folder / "a cache elsewhere"),
    ],
    ids=["frame", "path", "dataset in memory", "another cache"],
)
def test_other_data_has_no_copies(make, tmp_path, cache):
    assert cached_copies(make(tmp_path)) == ()


def test_what_a_user_saved_is_the_user_s_wherever_it_lies(tmp_path, cache):
    data = loaded(tmp_path, cache)
    data.save_to_disk(cache / "mine")
    saved = datasets.load_from_disk(cache / "mine")
    assert cached_copies(saved) == ()
    files = [Path(file["filename"]) for file in saved.cache_files]
    assert remove_copies(copy_of(path, cache) for path in files) == ()
    assert all(path.exists() for path in files)


def test_nothing_outside_the_cache_is_touched(tmp_path, cache):
    copies = cached_copies(loaded(tmp_path, cache))
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("own.arrow", "cache-1.arrow", "dataset_info.json"):
        (mine / name).write_text("my own")
    folder = copies[0].path.parent
    (folder / "cache-2.arrow").symlink_to(mine / "own.arrow")
    (cache / "door").symlink_to(mine)
    outside = [mine / "own.arrow", cache / ".." / ".." / "mine" / "own.arrow", cache / "door" / "own.arrow"]
    outside.append(folder / "cache-2.arrow")
    assert remove_copies([*copies, *(copy_of(path, cache) for path in outside)]) == ()
    assert holding(cache) == []
    assert sorted(path.read_text() for path in mine.iterdir()) == ["my own"] * 3


def test_a_stray_file_of_the_cache_goes_and_only_derived_ones_with_it(tmp_path, cache):
    data = loaded(tmp_path, cache).map(lambda row: row, cache_file_name=str(cache / "named.arrow"))
    (cache / "cache-1.arrow").write_text(CANARY)
    (cache / "notes.txt").write_text("x")
    assert remove_copies(cached_copies(data)) == ()
    assert {path.name for path in cache.iterdir() if path.is_file() and path.suffix != ".lock"} == {"notes.txt"}


def test_data_that_is_no_dataset_imports_nothing():
    code = (
        "import sys; from s3t.deletion.dataset_cache import cached_copies, remove_copies\n"
        "assert cached_copies('x.csv') == () == remove_copies([])\n"
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
