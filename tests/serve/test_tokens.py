"""Bearer tokens: made once, kept as digests alone, refused once they are revoked or have expired."""

import shutil
from datetime import timedelta

import pytest

import s3t
from s3t.errors import InputError
from s3t.results.base import utc
from s3t_server.tokens import PREFIX, SCOPES, Access


def test_a_token_is_found_by_its_secret_which_is_kept_nowhere(trained):
    made, secret = Access(trained).create("app", scopes=["delete", "predict"], days=2, per_minute=60)
    assert secret.startswith(PREFIX)
    assert len(secret) > 40
    assert made.scopes == ("predict", "delete")
    assert made.expires_at == made.created_at + timedelta(days=2)
    assert made.refusal(made.expires_at - timedelta(seconds=1)) is None
    assert made.refusal(made.expires_at) == "the token has expired"
    assert Access(trained).find(secret) == made
    assert Access(trained).find(secret[:-1]) is None
    assert Access(trained).all() == (made,)
    assert secret not in repr(made)
    content = b"".join(path.read_bytes() for path in trained.path.rglob("*") if path.is_file())
    assert secret.removeprefix(PREFIX).encode() not in content
    assert made.digest in content


def test_a_revoked_token_stays_revoked_from_the_first_time_on_for_every_replica(trained):
    with s3t.Run.open(trained.path) as other:
        made, secret = Access(trained).create("app", scopes=["predict"])
        assert made.refusal(utc(1e10)) is Access(other).find(secret).revoked_at is None
        revoked = Access(trained).revoke("app")
        assert Access(trained).revoke("app") == revoked == Access(other).find(secret)
    assert revoked.refusal(made.created_at) == "the token was revoked"
    with pytest.raises(InputError, match="taken"):
        Access(trained).create("app", scopes=["predict"])


def test_a_clone_has_other_callers(trained, tmp_path):
    """And an adopted copy."""
    _, secret = Access(trained).create("app", scopes=list(SCOPES))
    with s3t.Run.clone(trained.path, tmp_path / "clone") as clone:
        assert Access(clone).all() == ()
        assert Access(clone).find(secret) is None
    assert Access(trained).find(secret) is not None
    trained.close()
    shutil.copytree(trained.path, tmp_path / "copy")
    with s3t.Run.adopt(tmp_path / "copy") as copy:
        assert Access(copy).all() == ()


def test_everything_that_is_wrong_is_told_at_once(trained):
    with pytest.raises(InputError) as caught:
        Access(trained).create("\n", scopes=["predicts", "delete"], days=0, per_minute=0)
    assert len(caught.value.problems) == 4
    assert "did you mean predict?" in str(caught.value)
    with pytest.raises(InputError, match="at least one of"):
        Access(trained).create("app", scopes=[])
    Access(trained).create("mobile", scopes=["predict"])
    with pytest.raises(InputError, match="did you mean mobile"):
        Access(trained).revoke("mobil")
    assert [token.name for token in Access(trained).all()] == ["mobile"]
