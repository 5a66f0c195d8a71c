"""What all tests share: a place for real data, quiet and single-threaded libraries, tiny models and tables."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip that says where it was looked for."""
    folder = Path(os.environ.get("S3T_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist; set S3T_DATA to the folder that holds it")
    return folder
