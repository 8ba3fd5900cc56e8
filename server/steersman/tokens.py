"""Bearer tokens: who may connect over HTTP, and as which principal.

The tokens of a state directory lie in `tokens.json`, as hashes. The first one is made by itself, and its plaintext
lies beside them in `token`, for the local user's own tools. Several processes may use one directory at once: writers
take turns by a lock, readers see whole files only, and a running server notices what others changed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from steersman.credentials import new_secret, secret_hash
from steersman.settings import CommandError, Profile, SettingsError
from steersman.text import is_unicode, visible

LOCAL_REALM: Final = "local"
"""The realm of the local user: of stdio connections, and of tokens that name no other subject."""

FIRST_LABEL: Final = "local"
MAX_NAME: Final = 64
"""How many characters a label or a subject may have."""


class StateError(CommandError):
    """The state directory cannot be used as asked. The message names the path and what to do about it."""


@dataclass(frozen=True)
class Token:
    """What is kept of one bearer token; the token itself is not."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    id: str
    label: str
    subject: str
    """The realm of everything that comes with the token."""
    profile: Profile | None
    """The host profile that is on for its calls."""
    created: str
    """When it was made: ISO 8601, UTC, whole seconds."""
    sha256: str
    """The token's hash, in hexadecimal."""


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    tokens: list[Token]


_FILE: Final = TypeAdapter(_File)

_Signature = tuple[int, int, int]


class TokenStore:
    """The tokens of one state directory.

    Args:
        state_dir: made with mode 0700, when the first token is written, if it does not exist.
    """

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir
        self._path = state_dir / "tokens.json"
        self._first_path = state_dir / "token"
        self._signature: _Signature | None = None
        self._by_hash: dict[str, Token] = {}

    def ensure_first(self) -> Path:
        """Make sure that the local user's own tools have a token.

        A new one is made on the first start, and after the last one was revoked or its file was lost.

        Returns:
            The file, mode 0600, that holds it in plain text.

        Raises:
            StateError: the directory cannot be read or written.
        """
        if not self._first_works():
            with self._writing() as tokens:
                if not self._first_works():
                    token, plaintext = _make(FIRST_LABEL, LOCAL_REALM, None, tokens)
                    self._replace(self._first_path, plaintext + "\n")
                    self._write([*tokens, token])
        return self._first_path

    def new(self, label: str, subject: str = LOCAL_REALM, profile: Profile | None = None) -> str:
        """Make a token.

        Args:
            label: what people call it; several tokens may share one.
            subject: the principal it stands for, whose agents and questions are its realm.
            profile: the host profile of the host that it is made for.

        Returns:
            The token itself. Nothing can show it a second time.

        Raises:
            SettingsError: a label or subject of a wrong form.
            StateError: the directory cannot be read or written.
        """
        _check_name("label", label)
        _check_name("subject", subject)
        with self._writing() as tokens:
            token, plaintext = _make(label, subject, profile, tokens)
            self._write([*tokens, token])
        return plaintext

    def list(self) -> Sequence[Token]:
        """All tokens, oldest first. Raises `StateError` if they cannot be read."""
        self._refresh()
        return list(self._by_hash.values())

    def revoke(self, id_or_label: str) -> Token:
        """End a token: whoever brings it from now on is turned away with 401.

        Returns:
            What was kept of it.

        Raises:
            StateError: there is no such token, or several have that label; the directory cannot be read or written.
        """
        with self._writing() as tokens:
            revoked = _pick(tokens, id_or_label, self._path)
            self._write([token for token in tokens if token is not revoked])
            if self._first_hash() == revoked.sha256:
                with suppress(FileNotFoundError):
                    self._first_path.unlink()
        return revoked

    def find(self, plaintext: str) -> Token | None:
        """The token that `plaintext` is, if it is one now.

        One hash and one lookup, whatever is brought: how long it takes tells nothing about the tokens there are.

        Raises:
            StateError: the tokens cannot be read.
        """
        self._refresh()
        return self._by_hash.get(secret_hash(plaintext))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the file again if it is not the one read last."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                signature = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
                if signature == self._signature:
                    return
                content = file.read()
        except FileNotFoundError:
            self._signature, self._by_hash = None, {}
            return
        except OSError as error:
            raise _unusable(self._path, "read", error) from None
        try:
            tokens = _FILE.validate_json(content).tokens
        except ValidationError:
            raise StateError(
                f"{self._path} is damaged: it is not a list of tokens as Steersman writes it. Restore it from a "
                "backup, or delete it and make new tokens by `steersman token new`."
            ) from None
        self._signature = signature
        self._by_hash = {token.sha256: token for token in tokens}

    def _first_works(self) -> bool:
        self._refresh()
        return self._first_hash() in self._by_hash

    def _first_hash(self) -> str | None:
        try:
            return secret_hash(self._first_path.read_text(encoding="utf-8", errors="replace").strip())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._first_path, "read", error) from None

    # --- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Generator[list[Token]]:
        """Hold the directory's lock, and hand out the tokens there are."""
        lock_path = self._dir / "tokens.lock"
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._dir.stat().st_mode & 0o022:
                raise StateError(
                    f"{self._dir} can be written by other users, who could put tokens of their own into it. "
                    f"Run `chmod go-w {self._dir}`, or choose another directory by --state-dir."
                )
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self._dir, "written", error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            yield list(self._by_hash.values())
        finally:
            os.close(lock)

    def _write(self, tokens: list[Token]) -> None:
        self._replace(self._path, _FILE.dump_json(_File(tokens), indent=1).decode() + "\n")

    def _replace(self, path: Path, content: str) -> None:
        """Put a whole new file, mode 0600, in the place of `path`: readers see the old one or the new one."""
        try:
            descriptor, temporary = tempfile.mkstemp(dir=self._dir, prefix=f".{path.name}-")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise _unusable(path, "written", error) from None


def _make(label: str, subject: str, profile: Profile | None, others: Sequence[Token]) -> tuple[Token, str]:
    plaintext = new_secret()
    taken = {token.id for token in others}
    made_up = f"token-{secrets.token_hex(6)}"
    while made_up in taken:
        made_up = f"token-{secrets.token_hex(6)}"
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Token(made_up, label, subject, profile, created, secret_hash(plaintext)), plaintext


def _pick(tokens: Sequence[Token], id_or_label: str, path: Path) -> Token:
    found = [token for token in tokens if token.id == id_or_label]
    found = found or [token for token in tokens if token.label == id_or_label]
    if not found:
        raise StateError(
            f"No token in {path} has the id or label {id_or_label!r}. `steersman token list` shows those there are."
        )
    if len(found) > 1:
        ids = ", ".join(token.id for token in found)
        raise StateError(f"{len(found)} tokens in {path} have the label {id_or_label!r}: name one by its id, {ids}.")
    return found[0]


def _check_name(what: str, name: str) -> None:
    if not is_unicode(name) or not 0 < len(name) <= MAX_NAME or visible(name) != name or name.strip() != name:
        raise SettingsError(
            f"{what}: found {name[: MAX_NAME + 1]!a}; allowed are 1 to {MAX_NAME} visible characters, with no blank "
            "at either end."
        )


def _unusable(path: Path, what: str, error: OSError) -> StateError:
    why = error.strerror or type(error).__name__
    return StateError(
        f"{path} cannot be {what}: {why}. Give the user who runs Steersman that right, or choose another directory "
        "by --state-dir."
    )
