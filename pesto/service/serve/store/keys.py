"""Idempotency keys: which job a submission is that came before."""

from pesto.service.serve.refusals import RefusedError
from pesto.service.serve.store.database import Asked


def job_of(database: Asked, token: str, key: str, digest: bytes) -> str | None:
    """The id of the job that a key of a token made; None for none. RefusedError (409) where its request was another."""
    if not key:
        return None
    found = "SELECT digest, id FROM keys JOIN jobs ON number = job WHERE keys.token = ? AND key = ?"
    row = database.execute(found, (token, key)).fetchone()
    if row is None:
        return None
    if bytes(row[0]) != digest:
        what = "this Idempotency-Key was given with another request - choose a new key"
        raise RefusedError(409, what, code="key_reused")
    return str(row[1])
