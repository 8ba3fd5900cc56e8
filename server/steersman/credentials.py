"""Secrets that are handed out once and kept as hashes."""

from __future__ import annotations

import hashlib
import secrets


def new_secret() -> str:
    """256 random bits as 43 characters that are safe in JSON, headers and URLs."""
    return secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """What is kept of a secret. No salt: 256 random bits need none."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
