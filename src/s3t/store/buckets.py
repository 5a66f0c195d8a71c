"""Blobs in a bucket of an object store that speaks Amazon S3's protocol, by obstore.

A put asks the server to create, and the server refuses where the name is taken. What is deleted has to be gone. So a
bucket whose server overwrites, or keeps versions, is refused: when a run is made (`try_out`), and before anything is
removed, since somebody may have switched versions on.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from s3t.errors import ForkedError, IntegrityError, StorageError

if TYPE_CHECKING:
    from obstore.store import S3Credential

_TIME_FOR_A_REQUEST = timedelta(minutes=10)  # one carries a whole slice
_TIME_FOR_RETRIES = timedelta(seconds=60)
_HEADS_AT_ONCE = 16
_TRIES = 5
_PROBE = "probe"


class BucketBlobs:
    """Blobs below s3://BUCKET/PREFIX; credentials, region and endpoint come from the environment, as for the AWS
    command line. A blob is put whole or not at all, and nothing of an unfinished put is to be seen.

    The methods are those of `LocalBlobs`. They raise StorageError where the bucket refuses or does not answer: that is
    no damage.
    """

    remote = True

    def __init__(self, url: str) -> None:
        self._url = url
        plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint.startswith("http:") and not plain:
            raise StorageError(f"{endpoint} is not encrypted", remedy="if that is meant, set AWS_ALLOW_HTTP=true")
        with _refusals(url):
            self._store = S3Store.from_url(
                url,
                client_options={
                    "timeout": _TIME_FOR_A_REQUEST,
                    "connect_timeout": timedelta(seconds=10),
                    "read_timeout": timedelta(seconds=60),
                    "allow_http": plain,
                },
                retry_config={"max_retries": 6, "retry_timeout": _TIME_FOR_RETRIES},
                credential_provider=None if "AWS_ACCESS_KEY_ID" in os.environ else _credentials(),
            )

    def where(self, name: str) -> str:
        return f"{self._url}/{name}"

    def put(self, name: str, content: bytes) -> None:
        """Store a blob. Raises IntegrityError if other content has the name already."""
        with _refusals(self.where(name)):
            for _ in range(_TRIES):
                try:
                    self._put(name, content, mode="create")
                    return
                except AlreadyExistsError:  # put by a killed process, or by a request of ours whose answer was lost
                    with suppress(FileNotFoundError), self.open(name) as file:  # else another request was under way
                        if file.read() == content:
                            return
                        raise IntegrityError(
                            f"{self.where(name)}: other bytes are there already; run `s3t erase`, then try again"
                        ) from None
            raise StorageError(f"{self.where(name)}: other requests for it are under way", remedy="wait a moment")

    def _put(self, name: str, content: bytes, *, mode: Literal["create", "overwrite"]) -> None:
        version = obstore.put(self._store, name, content, mode=mode).get("version")
        if version is not None:
            import boto3  # here: it takes a while; obstore deletes no version
            from botocore.exceptions import BotoCoreError, ClientError

            bucket, _, prefix = self._url.removeprefix("s3://").partition("/")
            stays = ""
            try:
                boto3.client("s3").delete_object(Bucket=bucket, Key=f"{prefix}/{name}".lstrip("/"), VersionId=version)
            except (BotoCoreError, ClientError) as error:
                stays = f", and version {version} of {name} stays ({type(error).__name__}): delete it"
            raise StorageError(
                f"the bucket of {self._url} keeps versions of what is deleted{stays}",
                remedy="clone the run into a bucket without them (s3t clone --store)",
            )

    def open(self, name: str) -> BinaryIO:
        """A blob, read into memory. Raises FileNotFoundError if it is not there."""
        with _refusals(self.where(name)):
            return io.BytesIO(obstore.get(self._store, name).bytes().to_bytes())

    def erase(self, names: Collection[str]) -> None:
        """Remove blobs; one that is not there is no error."""
        if names:
            with _refusals(self._url):
                self._put(_PROBE, b"", mode="overwrite")  # first: a bucket with versions keeps what is removed
                obstore.delete(self._store, [*sorted(names), _PROBE])

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Size of each of the named blobs that is there, in bytes."""

        def size(name: str) -> int | None:
            with suppress(FileNotFoundError), _refusals(self.where(name)):
                return obstore.head(self._store, name)["size"]
            return None

        with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
            sizes = dict(zip(names, pool.map(size, names), strict=True))
        return {name: found for name, found in sizes.items() if found is not None}

    def names(self, folder: str = "") -> set[str]:
        """Every blob that is there, or below a folder."""
        with _refusals(self._url):
            return {meta["path"] for chunk in obstore.list(self._store, folder or None) for meta in chunk}

    def parts(self) -> set[str]:
        return set()

    def erase_parts(self, parts: Collection[str], *, sparing: Set[str]) -> None:
        pass


def try_out(url: str) -> None:
    """Check that a bucket can hold a run: with credentials that may put, read, list and delete, a server that refuses
    to overwrite, and without versions. Raises ValueError with what it cannot.
    """
    doing, name = "take a new object", f"probe-{secrets.token_hex(8)}"
    try:
        blobs = BucketBlobs(url)
        blobs.put(name, b"1")
        doing = "refuse to overwrite an object (If-None-Match); deletions need that"
        with suppress(IntegrityError):
            blobs.put(name, b"2")
            raise ValueError(f"the server did not {doing}")
        doing = "give an object back"
        with blobs.open(name) as file:
            if file.read() != b"1":
                raise ValueError(f"the server did not {doing}")
        doing = "list its objects"
        if name not in blobs.names():
            raise ValueError(f"the server did not {doing}")
        doing = "delete an object"
        blobs.erase([name])
        if blobs.sizes([name]):
            raise ValueError(f"the server did not {doing}")
    except FileNotFoundError:
        raise ValueError("is not there: make the bucket first") from None
    except StorageError as error:
        raise ValueError(f"could not {doing}: {error.reason}; {error.remedy}") from error


def _credentials() -> Callable[[], S3Credential]:
    from botocore.exceptions import BotoCoreError  # here: these take a while
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except (ValueError, BotoCoreError) as error:
        raise StorageError(
            f"no credentials were found ({error})", remedy="set AWS_PROFILE, or AWS_ACCESS_KEY_ID"
        ) from error


_used_by: set[int] = set()
"""Processes that have used the library, of which a fork leaves the parent's here: its threads are gone."""
_REMEDY = "look at the bucket, the network and the credentials"
_CODE = re.compile(r"<Code>(\w+)</Code>")  # of an answer
_CAUSE = re.compile(r".* - (.+)")  # of a request that had none


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    """Turn the store's errors, which repeat whole requests and answers, into ours."""
    _used_by.add(os.getpid())
    if len(_used_by) > 1:
        raise ForkedError(
            "this process was forked off after its parent had used a bucket, and the library does not survive that: "
            "start processes with multiprocessing's `spawn`"
        )
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object", where) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise StorageError(f"{where}: the credentials may not ({_reason(error)})", remedy=_REMEDY) from None
    except BaseError as error:
        raise StorageError(f"{where}: {_reason(error)}", remedy=_REMEDY) from None


def _reason(error: BaseError) -> str:
    told = str(error)
    found = _CODE.search(told) or _CAUSE.search(told)
    return found[1] if found else told.splitlines()[0]
