"""Bearer tokens: who may connect over HTTP, and as which principal.

The journal keeps their hashes. The plaintext of one, the first, lies in a file for the local user's own tools.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steersman.clock import Clock
from steersman.credentials import new_secret, secret_hash
from steersman.journal import Event, Journal, Restored, TokenMade, TokenRestored, TokenRevoked
from steersman.settings import CommandError, Profile, SettingsError
from steersman.text import is_unicode, visible

LOCAL_REALM: Final = "local"
"""The realm of the local user: of stdio connections, and of tokens that name no other subject."""

FIRST_LABEL: Final = "local"
FIRST_FILE: Final = "token"
"""The file in the state directory that holds the first token."""
MAX_NAME: Final = 64
"""How many characters a label or a subject may have."""

_PLAINTEXT: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class TokenError(CommandError):
    """A token, or the file of the first one, cannot be used as asked. The message says why and what to do about it."""


@dataclass(frozen=True)
class Token:
    """What is kept of one bearer token; the token itself is not."""

    id: str
    label: str
    subject: str
    """The realm of everything that comes with the token."""
    profile: Profile | None
    """The host profile that is on for its calls."""
    created_at: float
    """Seconds since the epoch."""
    sha256: str
    """The token's hash, in hexadecimal."""


class Tokens:
    """The tokens that are good: a fold of the journal, and what is done with them."""

    def __init__(self, *, clock: Clock, journal: Journal) -> None:
        self._clock = clock
        self._journal = journal
        self._by_hash: dict[str, Token] = {}
        self._first_path: Path | None = None
        journal.fold(self._apply)

    def find(self, plaintext: str) -> Token | None:
        """The token that `plaintext` is, if it is one now.

        One hash and one lookup, whatever is brought: how long it takes tells nothing about the tokens there are.
        """
        return self._by_hash.get(secret_hash(plaintext))

    def list(self) -> Sequence[Token]:
        """All tokens, oldest first."""
        return tuple(self._by_hash.values())

    async def new(self, label: str, subject: str = LOCAL_REALM, profile: Profile | None = None) -> str:
        """Make a token.

        Args:
            label: what people call it; several tokens may share one.
            subject: the principal it stands for, whose agents and questions are its realm.
            profile: the host profile of the host that it is made for.

        Returns:
            The token itself. Nothing can show it a second time.

        Raises:
            SettingsError: a label or subject of a wrong form.
        """
        check_name("label", label)
        check_name("subject", subject)
        plaintext = new_secret()
        await self._keep(plaintext, label, subject, profile)
        return plaintext

    async def revoke(self, id_or_label: str) -> Token:
        """End a token: whoever brings it from now on is turned away with 401.

        Returns:
            What was kept of it.

        Raises:
            TokenError: there is no such token, or several have that label; or the first token's file stays.
        """
        revoked = self._pick(id_or_label)
        path = self._first_path
        if path is not None and _hash_in(path) == revoked.sha256:
            # Before it ends: left behind, its plaintext would be taken for a good token at the next start.
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unusable(path, "removed", error) from None
        await self._journal.append(TokenRevoked(revoked.subject, revoked.id))
        return revoked

    async def ensure_first(self, state_dir: Path) -> Path:
        """Make sure that the local user's own tools have a token.

        What is in the file is good from now on, also in a journal that does not know it; without a file, a new one is
        made. Servers that do this at once for one directory get the same.

        Args:
            state_dir: is there already, and only its user can write it.

        Returns:
            The file, mode 0600, that holds it in plain text.

        Raises:
            TokenError: the file cannot be read or written.
        """
        path = state_dir / FIRST_FILE
        plaintext = _read(path)
        if plaintext is None:
            plaintext = _place(path, new_secret())
        if self.find(plaintext) is None:
            await self._keep(plaintext, FIRST_LABEL, LOCAL_REALM, None)
        self._first_path = path
        return path

    async def _keep(self, plaintext: str, label: str, subject: str, profile: Profile | None) -> None:
        made_up = f"token-{secrets.token_hex(8)}"
        made = TokenMade(subject, made_up, label, profile, self._clock.wall_time(), secret_hash(plaintext))
        await self._journal.append(made)

    def _pick(self, id_or_label: str) -> Token:
        tokens = self.list()
        found = [token for token in tokens if token.id == id_or_label]
        found = found or [token for token in tokens if token.label == id_or_label]
        if not found:
            raise TokenError(
                f"No token has the id or label {id_or_label[: MAX_NAME + 1]!a}. `steersman token list` shows those "
                "there are."
            )
        if len(found) > 1:
            ids = ", ".join(token.id for token in found)
            raise TokenError(f"{len(found)} tokens have the label {id_or_label!a}: name one by its id, {ids}.")
        return found[0]

    def _apply(self, event: Event | Restored) -> None:
        match event:
            case TokenMade() | TokenRestored():
                self._by_hash[event.token_hash] = Token(
                    event.token_id, event.label, event.realm, event.profile, event.created_at, event.token_hash
                )
            case TokenRevoked():
                kept = self._by_hash.items()
                self._by_hash = {key: token for key, token in kept if token.id != event.token_id}
            case _:
                pass


def check_name(what: str, name: str) -> None:
    """See that a label or a subject is one that people can tell from others. Raises `SettingsError`."""
    if not is_unicode(name) or not 0 < len(name) <= MAX_NAME or visible(name) != name or name.strip() != name:
        raise SettingsError(
            f"{what}: found {name[: MAX_NAME + 1]!a}; allowed are 1 to {MAX_NAME} visible characters, with no blank "
            "at either end."
        )


# --- the first token's file ------------------------------------------------------------------------------------------


def _read(path: Path) -> str | None:
    """What the file holds; none if it is not there, or holds no token."""
    try:
        content = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, "read", error) from None
    return content if _PLAINTEXT.fullmatch(content) else None


def _hash_in(path: Path) -> str | None:
    content = _read(path)
    return secret_hash(content) if content is not None else None


def _place(path: Path, plaintext: str) -> str:
    """Put a token where none is, whole at any moment, mode 0600. Returns the one that is there then."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(plaintext + "\n")
                file.flush()
                os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(temporary, path)
                return plaintext
            # Another server was faster, or what lies there is no token.
            found = _read(path)
            if found is None:
                os.replace(temporary, path)
            return found or plaintext
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        raise _unusable(path, "written", error) from None


def _unusable(path: Path, what: str, error: OSError) -> TokenError:
    why = error.strerror or type(error).__name__
    return TokenError(
        f"{path} cannot be {what}: {why}. Give the user who runs Steersman that right, or choose another directory "
        "by --state-dir."
    )
