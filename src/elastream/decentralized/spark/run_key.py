"""The key of a run: who knows it belongs to the run. It is in the run's folder, for its owner alone (mode 0600).

A proof is a code over what is said and a nonce of the other side (HMAC-SHA256), so that the key itself is never
sent, and a proof that was overheard is of no use a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from elastream.errors import ElastreamError
from elastream.whole_files import make_folder, remove_lasting, sync_files

_BYTES = 32
_OTHERS = 0o077


class NotOfThisRunError(ElastreamError):
    """Who speaks does not know the key."""


class RunKey:
    def __init__(self, run: Path) -> None:
        self._key = _key_in(run / "key")

    def proof(self, *said: str | int | None) -> str:
        return hmac.new(self._key, json.dumps(said).encode(), hashlib.sha256).hexdigest()

    def check(self, proof: object, *said: str | int | None) -> None:
        if not isinstance(proof, str) or not hmac.compare_digest(proof.encode(), self.proof(*said).encode()):
            raise NotOfThisRunError("the key of this run was expected, and another one was used, or none")


def _key_in(path: Path) -> bytes:
    """The one that is there, or a new one: where several make one at once, the first counts for all."""
    if not path.exists():
        make_folder(path.parent)
        beside = path.with_name(f".key.{secrets.token_hex(8)}")
        opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(opened, "wb") as file:
            file.write(secrets.token_hex(_BYTES).encode())
        sync_files([beside])
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
        remove_lasting([beside])
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise ElastreamError(
            f"{path}: only its owner may read the key of a run: chmod 600, found {mode & 0o777:o}"
        )
    found = path.read_bytes()
    if len(found) != 2 * _BYTES:
        raise ElastreamError(f"{path}: a key of {2 * _BYTES} characters was expected, found {len(found)}")
    return found
