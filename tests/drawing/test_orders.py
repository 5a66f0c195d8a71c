"""Pictures of orders: whole files in three formats."""

import subprocess
import sys
from collections import Counter

import pytest

from s3t.drawing import check_picture, draw_orders
from s3t.errors import InputError, StorageError
from s3t.orders import Setting, bms, cyclic, full
from tests.drawing.pictures import assert_is_picture, texts


def labels(path):
    """The whole numbers in the picture: of nodes or cells, of positions, and of a bar of slices."""
    return Counter(text for text in texts(path) if text.isdigit())


@pytest.mark.parametrize(("suffix", "slices"), [(".png", 1), (".pdf", 8), (".PNG", 3)])
def test_a_picture_is_written_in_every_format_the_same_for_the_same_orders(tmp_path, suffix, slices):
    orders, paths = (
        cyclic(Setting(slices=slices, budget=min(slices, 3))),
        [tmp_path / f"{name}{suffix}" for name in "ab"],
    )
    for path in paths:
        draw_orders(orders, path, title="orders")
        assert_is_picture(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_every_cell_of_a_few_orders_names_its_slice_and_of_many_there_is_no_room_for_it(tmp_path):
    path = tmp_path / "orders.svg"
    draw_orders([(0, 1, 2, 3), (0, 1, 3, 2)], path, title="", prior=(0.4, 0.3, 0.2, 0.1))
    assert labels(path) == Counter("01230132") + Counter("1234")
    draw_orders(full(Setting(slices=5, budget=120)), path, title="")
    assert sum(labels(path).values()) < 20


def test_a_prior_colours_the_slices_and_has_a_bar(tmp_path):
    setting = Setting(slices=4, budget=4, prior=(0.7, 0.1, 0.1, 0.1))
    plain, coloured = tmp_path / "plain.svg", tmp_path / "coloured.svg"
    draw_orders(bms(setting), plain, title="")
    draw_orders(bms(setting), coloured, title="", prior=setting.probabilities)
    bar = "probability that a deletion hits the slice"
    assert bar in texts(coloured)
    assert bar not in texts(plain)


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
    def refuse(_descriptor):
        raise OSError(28, "No space left on device")

    (tmp_path / "orders.png").write_bytes(b"old")
    monkeypatch.setattr("s3t.store.disk.os.fsync", refuse)
    with pytest.raises(StorageError, match="No space left"):
        draw_orders([(0,)], tmp_path / "orders.png", title="")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import s3t.drawing, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
