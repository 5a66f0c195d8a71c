"""The scanner of the residue test finds what is there, however it is packed."""

import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import sqlite3
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.numpy
from PIL import Image

from testing import tiny
from tests.deletion import scanner
from tests.deletion.scanner import found_in, image_spellings, spellings, token_spellings

WORD = "canary7f3a91c2b65d0e88f41790ac3d"
TOKENS = [7, 11, 35, 12, 29, 8]
PIXELS = [[10, 200, 30, 90], [1, 2, 250, 77], [63, 61, 60, 5], [9, 8, 7, 6]]
IMAGE = tiny.png(PIXELS)
_written = io.BytesIO()
Image.fromarray(np.array(PIXELS, np.uint8)).save(_written, format="png", compress_level=0)
OTHER_IMAGE = _written.getvalue()
WORDS = {"word": spellings(WORD), "tokens": token_spellings(TOKENS), "image": image_spellings(IMAGE)}
# Its halves come first, so that packing writes the word as two repetitions.
TEXT = f"{WORD[:16]} {WORD[16:]} some text with {WORD} in it, " + "and much that repeats itself " * 50


def parquet(path, values, **options):
    pa.parquet.write_table(pa.table({"x": values}), path, **options)


def arrow(path, maker, codec):
    table = pa.table({"x": [TEXT]})
    with maker(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)


def database_with_free_pages(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE t (x TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [(TEXT,)] * 20)
    connection.commit()
    connection.execute("DELETE FROM t")
    connection.commit()
    assert connection.execute("PRAGMA freelist_count").fetchone()[0] > 0
    connection.close()


def database_with_a_packed_value(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute('CREATE TABLE "a ""b" (x BLOB)')
    connection.execute('INSERT INTO "a ""b" VALUES (?)', (gzip.compress(TEXT.encode()),))
    connection.commit()
    connection.close()


def zip_file(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", TEXT)


PACKED = {
    "plain": lambda path: path.write_text(TEXT),
    "utf-16": lambda path: path.write_text(TEXT, encoding="utf-16"),
    "upper case": lambda path: path.write_text(TEXT.upper()),
    "base64": lambda path: path.write_bytes(base64.b64encode(TEXT.encode())),
    "base64, one on": lambda path: path.write_bytes(base64.b64encode(b"-" + TEXT.encode())),
    "base64, two on": lambda path: path.write_bytes(base64.urlsafe_b64encode(b"--" + TEXT.encode())),
    "hex": lambda path: path.write_text(TEXT.encode().hex()),
    "json": lambda path: path.write_text(json.dumps({"ü": TEXT})),
    "gzip": lambda path: path.write_bytes(gzip.compress(TEXT.encode())),
    "bz2": lambda path: path.write_bytes(bz2.compress(TEXT.encode())),
    "xz": lambda path: path.write_bytes(lzma.compress(TEXT.encode())),
    "zstd": lambda path: path.write_bytes(pa.compress(TEXT.encode(), "zstd", asbytes=True)),
    "zip": zip_file,
    "parquet, zstd": lambda path: parquet(path, [TEXT] * 3, compression="zstd", write_statistics=False),
    "parquet, snappy and a dictionary": lambda path: parquet(path, [TEXT] * 9, compression="snappy"),
    "parquet, nested": lambda path: parquet(path, [[{"a": TEXT}]], compression="gzip"),
    "arrow stream, lz4": lambda path: arrow(path, pa.ipc.new_stream, "lz4"),
    "arrow file, zstd": lambda path: arrow(path, pa.ipc.new_file, "zstd"),
    "free pages of SQLite": database_with_free_pages,
    "a packed value in SQLite": database_with_a_packed_value,
    "gzip in gzip": lambda path: path.write_bytes(gzip.compress(gzip.compress(TEXT.encode()))),
    "pickled frame": lambda path: pd.DataFrame({"x": [TEXT]}).to_pickle(path),
}


IMAGES = {
    "file": lambda path: path.write_bytes(IMAGE),
    "written anew": lambda path: path.write_bytes(OTHER_IMAGE),
    "bytes in parquet": lambda path: parquet(path, [OTHER_IMAGE], compression="zstd", write_statistics=False),
    "pixels": lambda path: np.array(PIXELS, np.uint8).tofile(path),
    "scaled pixels": lambda path: safetensors.numpy.save_file(
        {"x": (np.array(PIXELS, np.float64) / 255 * 2 - 1).astype(np.float32)}, path
    ),
    "whole numbers": lambda path: safetensors.numpy.save_file({"x": np.array(PIXELS, np.int16)}, path),
}
ENCODED = {
    "int64": lambda path: path.write_bytes(b"x" + np.array(TOKENS).tobytes()),
    "int32": lambda path: path.write_bytes(b"x" + np.array(TOKENS, np.int32).tobytes()),
    "json": lambda path: path.write_bytes(json.dumps(TOKENS).encode()),
}
WAYS = [(word, how) for word, ways in zip(WORDS, (PACKED, ENCODED, IMAGES), strict=True) for how in ways.items()]


@pytest.mark.parametrize(("word", "how"), WAYS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_a_word_is_found_however_it_is_packed(word, how, tmp_path):
    how[1](tmp_path / "file")
    assert found_in(tmp_path / "file", WORDS) == {word}


def test_packing_hides_it_from_a_search_of_bytes_alone(tmp_path):
    """Else the decoders would not be tested."""
    assert IMAGE not in OTHER_IMAGE
    for how in ("gzip", "zip", "parquet, zstd", "arrow stream, lz4", "arrow file, zstd", "a packed value in SQLite"):
        PACKED[how](tmp_path / how)
        assert WORD.encode() not in (tmp_path / how).read_bytes(), how


def test_a_file_s_own_name_and_a_plain_hash_count(tmp_path):
    (tmp_path / f"{WORD}.json").write_text("{}")
    (tmp_path / "hash").write_text(hashlib.sha256(WORD.encode()).hexdigest())
    assert found_in(tmp_path / f"{WORD}.json", WORDS) == {"word"}
    assert found_in(tmp_path / "hash", WORDS) == {"word"}


def test_other_content_is_not_taken_for_it(tmp_path):
    parquet(tmp_path / "a", ["another text"], compression="zstd")
    (tmp_path / "b").write_bytes(tiny.png([[1, 2], [3, 4]]))
    (tmp_path / "c").write_bytes(b"")
    assert not any(found_in(tmp_path / name, WORDS) for name in "abc")


def test_what_cannot_be_decoded_is_an_error_and_not_nothing(tmp_path):
    for magic in (b"PAR1", b"\x1f\x8b\x08", b"SQLite format 3\x00", b"PK\x03\x04"):
        (tmp_path / "broken").write_bytes(magic + b"nonsense")
        with pytest.raises(ValueError, match="cannot be decoded"):
            found_in(tmp_path / "broken", WORDS)


def test_things_in_things_have_an_end(tmp_path):
    content = TEXT.encode()
    for _ in range(scanner.DEEPEST):
        content = gzip.compress(content)
    (tmp_path / "file").write_bytes(content)
    assert found_in(tmp_path / "file", WORDS) == {"word"}
