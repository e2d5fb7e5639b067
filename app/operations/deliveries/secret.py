"""The secret that keys the digests of delivery ids.

With it only this service can write a record header that makes a delivery look like a repetition:
clients can put any header into a raw batch.
"""

from __future__ import annotations

import asyncio
import binascii
import secrets
from typing import Final

from app.store.documents import Documents

_DOCUMENT: Final = "deliveries"
_BYTES: Final = 32


async def delivery_secret(documents: Documents, changing: asyncio.Lock) -> bytes:
    """Return the secret; the first time, make one that is on disk on return.

    `changing` is held for changes of documents. Raises what `Documents.damaged` returns, and
    StorageError.
    """
    async with changing:
        stored = documents.all().get(_DOCUMENT)
        if stored is None:
            new = {"secret": secrets.token_bytes(_BYTES).hex()}
            stored = await documents.add(_DOCUMENT, new)  # another service may be first
    try:
        secret = binascii.unhexlify(str(stored.get("secret")))
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise documents.damaged(_DOCUMENT, f"its secret is not {_BYTES} bytes in hex")
    return secret
