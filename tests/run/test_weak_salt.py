"""A salt that is found by trying gives all names back, also after its destruction: no new run is made with one."""

import pytest
import yaml

import s3t
from s3t.core import Secret
from testing import tiny
from testing.roles import roles
from tests.cli.typed import document, invoke

WEAK = {"a": "1 character", "x" * 40: "1 different"}


@pytest.mark.parametrize("salt", WEAK)
def test_no_run_is_made_with_a_weak_salt_and_none_is_shown(salt, tmp_path, text_model, monkeypatch):
    recipe = tiny.recipe(text_model, partition={"salt": salt})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    tiny.text_table().to_csv(tmp_path / "records.csv", index=False)
    before = sorted(tmp_path.iterdir())
    asked = ("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    (problem,) = document(*asked, status=2)["error"]["problems"]
    assert problem.startswith(f"partition.salt: has {WEAK[salt]}")
    assert salt not in problem or len(salt) == 1
    monkeypatch.setenv("S3T_SECRET", salt)
    del recipe["partition"]["salt"]
    with pytest.raises(s3t.InputError, match=f"1 problem in S3T_SECRET:\n  - has {WEAK[salt]}"):
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table())
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_that_has_one_opens_and_status_warns(tmp_path, text_model):
    """One of before, or one on public data."""
    recipe = tiny.recipe(text_model, partition={"salt": "hush"})
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(), public_data=True).close()
    warning, *_ = (one for one in document("status", tmp_path / "run")["warnings"] if "secret" in one)
    assert warning.startswith("the run's secret has 4 characters, of at least 16")
    assert document("delete", tmp_path / "run", "--record", "r1")["deleted"] == 1


def test_init_and_destroy_key_say_that_a_declared_salt_outlives_the_runs(tmp_path, text_model):
    recipe = tiny.recipe(text_model)
    asked = ("--data", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    tiny.text_table().to_csv(asked[1], index=False)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert "declares the salt, so it outlives `s3t destroy-key`" in invoke("init", tmp_path / "run", *asked).stderr
    del recipe["partition"]["salt"]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert "salt" not in invoke("init", tmp_path / "drawn", *asked).stderr
    destroyed = invoke("destroy-key", tmp_path / "run", "--yes")
    assert "a recipe file of yours declares" in destroyed.stdout


def test_a_file_that_the_environment_names_can_hold_the_secret(tmp_path, text_model, monkeypatch):
    """Then the run folder holds none; and a file that is gone is told."""
    (tmp_path / "mounted").write_text(f"{tiny.SALT}\n")
    monkeypatch.setenv("S3T_SECRET_FILE", str(tmp_path / "mounted"))
    recipe = tiny.recipe(text_model)
    del recipe["partition"]["salt"]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        assert roles(run).secret == Secret(salt=tiny.SALT)
    assert not (tmp_path / "run" / "secret").exists()
    (tmp_path / "mounted").unlink()
    with pytest.raises(s3t.StorageError, match="S3T_SECRET_FILE"):
        s3t.Run.open(tmp_path / "run")
