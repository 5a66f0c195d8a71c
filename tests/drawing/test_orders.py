"""Pictures of orders: the tree where it can be read, cells beyond; whole files in three formats."""

import subprocess
import sys
from collections import Counter

import pytest
from PIL import Image

from s3t.drawing import check_picture, draw_orders, orders
from s3t.drawing.cells import draw_cells
from s3t.drawing.figure import GREEN, PALE
from s3t.errors import InputError, StorageError
from s3t.sequences import Setting, bms, cyclic, full, random_orders
from tests.drawing.pictures import assert_is_picture, texts


def labels(path):
    """The whole numbers in the picture: of nodes or cells, of positions, and of a bar of slices."""
    return Counter(text for text in texts(path) if text.isdigit())


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
@pytest.mark.parametrize("slices", [1, 3, 8, 40])
def test_a_picture_is_written_in_every_format(tmp_path, suffix, slices):
    path = tmp_path / f"orders{suffix}"
    draw_orders(cyclic(Setting(slices=slices, budget=min(slices, 3))), path, title="orders")
    assert_is_picture(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_small_systems_have_the_whole_tree_with_the_chosen_paths_marked(tmp_path):
    path = tmp_path / "orders.svg"
    draw_orders(cyclic(Setting(slices=3, budget=3)), path, title="three")
    found = labels(path)
    # 15 prefixes, of which each slice ends 5; and the numbers of three positions.
    assert found == {"0": 5, "1": 6, "2": 6, "3": 1}
    content = path.read_text()
    assert GREEN in content
    assert PALE in content
    assert "three" in texts(path)


def test_shared_prefixes_are_one_node_of_the_trie(tmp_path):
    path = tmp_path / "orders.svg"
    draw_orders([(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 5, 4)], path, title="")
    # A chain of four, then two of two; and the positions.
    assert labels(path) == Counter("0123") + Counter("4554") + Counter("123456")
    assert PALE not in path.read_text()


def test_cells_of_a_shared_prefix_are_one(tmp_path):
    path = tmp_path / "orders.svg"
    draw_cells([(0, 1, 2, 3), (0, 1, 3, 2)], path, title="", prior=(0.4, 0.3, 0.2, 0.1))
    assert labels(path) == Counter("01") + Counter("2332") + Counter("1234")


@pytest.mark.parametrize(
    ("made", "cells"),
    [
        (full(Setting(slices=5, budget=120)), False),
        (cyclic(Setting(slices=24, budget=40)), False),
        (cyclic(Setting(slices=25, budget=3)), True),
        (random_orders(Setting(slices=6, budget=41)), True),
        (cyclic(Setting(slices=64, budget=64)), True),
        (cyclic(Setting(slices=300, budget=300)), True),
    ],
    ids=lambda value: f"{len(value)}x{len(value[0])}" if isinstance(value, tuple) else None,
)
def test_trees_are_drawn_as_long_as_they_can_be_read(tmp_path, monkeypatch, made, cells):
    drawn = []
    for name in ("draw_tree", "draw_cells"):
        monkeypatch.setattr(orders, name, lambda *_, name=name, **__: drawn.append(name))
    draw_orders(made, tmp_path / "orders.png", title="")
    assert drawn == ["draw_cells" if cells else "draw_tree"]


def test_a_picture_of_64_orders_of_64_slices_is_square_enough_and_has_all_labels(tmp_path):
    path = tmp_path / "orders.svg"
    draw_orders(cyclic(Setting(slices=64, budget=64)), path, title="")
    assert labels(path)["37"] == 64


def test_labels_are_thinned_out_where_there_is_no_room(tmp_path):
    path = tmp_path / "orders.svg"
    draw_orders(full(Setting(slices=6, budget=720)), path, title="")
    found = labels(path)
    assert 6 < sum(found.values()) < 300


def test_a_prior_colours_the_slices_and_has_a_bar(tmp_path):
    setting = Setting(slices=4, budget=4, prior=(0.7, 0.1, 0.1, 0.1))
    plain, coloured = tmp_path / "plain.svg", tmp_path / "coloured.svg"
    draw_orders(bms(setting), plain, title="")
    draw_orders(bms(setting), coloured, title="", prior=setting.probabilities)
    bar = "probability that a deletion hits the slice"
    assert bar in texts(coloured)
    assert bar not in texts(plain)


def test_the_same_orders_give_the_same_bytes(tmp_path):
    for suffix in (".svg", ".pdf", ".png"):
        for name in "ab":
            draw_orders(cyclic(Setting(slices=4, budget=4)), tmp_path / f"{name}{suffix}", title="")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_picture_is_1600_pixels_wide(tmp_path):
    draw_orders(cyclic(Setting(slices=4, budget=4)), tmp_path / "a.png", title="")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width == 1600
        assert image.height > 300


@pytest.mark.parametrize("name", ["orders", "orders.gif", "missing/orders.png", "folder.png"])
def test_a_place_where_no_picture_can_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match=r"use \.png, \.svg, \.pdf|does not exist; make it first|is a folder"):
        check_picture(tmp_path / name)


def test_without_matplotlib_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match='pip install "matplotlib'):
        check_picture(tmp_path / "orders.png")


def test_a_disk_that_refuses_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "orders.png"
    path.write_bytes(b"old")
    monkeypatch.setattr("s3t.disk.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="No space left"):
        draw_orders(cyclic(Setting(slices=3, budget=3)), path, title="")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import s3t.drawing, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
