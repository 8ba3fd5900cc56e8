"""Bearer tokens: what is kept of them, and the file of the first one."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from steersman.journal import Journal, MemoryJournal
from steersman.settings import SettingsError
from steersman.storage.journal import open_journal
from steersman.tokens import TokenError, Tokens
from tests.clock import ManualClock
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

A_TOKEN = "Zm9yIHRlc3RzIG9ubHksIG5vIHNlY3JldCBhdCBhbGw"


def make_tokens(journal: Journal | None = None) -> Tokens:
    journal = journal or MemoryJournal()
    tokens = Tokens(clock=ManualClock(), journal=journal)
    journal.restore()
    return tokens


@requirement("serving:tokens")
async def test_the_first_start_makes_one_token_that_local_tools_can_read(tmp_path: Path) -> None:
    tokens = make_tokens()
    before = os.umask(0)
    try:
        path = await tokens.ensure_first(tmp_path)
    finally:
        os.umask(before)
    assert path == tmp_path / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
    [token] = tokens.list()
    assert (token.label, token.subject, token.profile) == ("local", "local", None)
    plaintext = path.read_text().strip()
    assert tokens.find(plaintext) == token
    assert (await tokens.ensure_first(tmp_path)).read_text().strip() == plaintext
    assert len(tokens.list()) == 1


@requirement("serving:tokens")
async def test_the_journal_keeps_tokens_over_a_restart_and_none_in_plain_text(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        async with open_journal(tmp_path) as journal:
            tokens = make_tokens(journal)
            first = (await tokens.ensure_first(tmp_path)).read_text().strip()
            made = await tokens.new("laptop", "guest", "codex")
            gone = await tokens.new("gone")
            await tokens.revoke("gone")
            kept = tokens.list()
        for path in tmp_path.iterdir():
            for plaintext in (made, gone) if path.name == "token" else (first, made, gone):
                assert plaintext.encode() not in path.read_bytes()
        async with open_journal(tmp_path) as journal:
            again = make_tokens(journal)
            assert again.list() == kept
            found = again.find(made)
            assert found is not None
            assert (found.label, found.subject, found.profile) == ("laptop", "guest", "codex")
            assert again.find(gone) is None
            await again.ensure_first(tmp_path)
            assert again.list() == kept


@requirement("serving:tokens")
async def test_a_token_is_found_by_all_of_it_and_nothing_less() -> None:
    tokens = make_tokens()
    plaintext = await tokens.new("laptop")
    [token] = tokens.list()
    for other in ("", plaintext[:-1], plaintext + " ", token.id, token.sha256, "\ud800"):
        assert tokens.find(other) is None


@requirement("serving:tokens")
async def test_a_revoked_first_token_takes_its_file_along_and_the_next_start_makes_another(tmp_path: Path) -> None:
    tokens = make_tokens()
    old = (await tokens.ensure_first(tmp_path)).read_text().strip()
    await tokens.revoke("local")
    assert not (tmp_path / "token").exists()
    new = (await tokens.ensure_first(tmp_path)).read_text().strip()
    assert tokens.find(old) is None
    assert tokens.find(new) is not None


@requirement("serving:tokens")
async def test_revoking_another_token_leaves_the_first_ones_file(tmp_path: Path) -> None:
    tokens = make_tokens()
    path = await tokens.ensure_first(tmp_path)
    await tokens.new("laptop")
    await tokens.revoke("laptop")
    assert tokens.find(path.read_text().strip()) is not None


@requirement("serving:tokens")
async def test_a_first_token_whose_file_stays_is_not_called_revoked(tmp_path: Path) -> None:
    tokens = make_tokens()
    path = await tokens.ensure_first(tmp_path)
    plaintext = path.read_text().strip()
    path.unlink()
    path.mkdir()
    with pytest.raises(TokenError, match=rf"{path} cannot be read.*--state-dir"):
        await tokens.revoke("local")
    assert tokens.find(plaintext) is not None


@requirement("serving:tokens")
async def test_a_lost_token_file_is_made_again_and_copies_of_the_old_token_go_on_working(tmp_path: Path) -> None:
    tokens = make_tokens()
    copied = (await tokens.ensure_first(tmp_path)).read_text().strip()
    (tmp_path / "token").unlink()
    await tokens.ensure_first(tmp_path)
    assert tokens.find(copied) is not None


@requirement("serving:tokens")
async def test_servers_of_one_directory_share_the_first_token(tmp_path: Path) -> None:
    one, two = make_tokens(), make_tokens()
    plaintext = (await one.ensure_first(tmp_path)).read_text().strip()
    assert (await two.ensure_first(tmp_path)).read_text().strip() == plaintext
    assert two.find(plaintext) is not None


@requirement("serving:tokens")
async def test_of_two_first_starts_at_once_the_slower_takes_the_others_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def after_another(source: str, target: Path) -> None:
        target.write_text(A_TOKEN + "\n")
        link(source, target)

    monkeypatch.setattr(os, "link", after_another)
    tokens = make_tokens()
    path = await tokens.ensure_first(tmp_path)
    assert path.read_text().strip() == A_TOKEN
    assert tokens.find(A_TOKEN) is not None
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


@requirement("serving:tokens")
@pytest.mark.parametrize("content", [b"", b"guess\n", A_TOKEN.encode() + b"x", b"\xff" * 43])
async def test_what_no_server_made_is_taken_for_no_token(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    tokens = make_tokens()
    found = (await tokens.ensure_first(tmp_path)).read_bytes()
    assert found != content
    assert tokens.find(found.decode().strip()) is not None
    assert tokens.find(content.decode(errors="replace").strip()) is None
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@requirement("serving:tokens")
async def test_revoking_by_an_ambiguous_label_names_the_ids_and_revokes_nothing() -> None:
    tokens = make_tokens()
    plaintexts = [await tokens.new("laptop"), await tokens.new("laptop")]
    first, second = tokens.list()
    with pytest.raises(TokenError, match=f"{first.id}, {second.id}"):
        await tokens.revoke("laptop")
    assert all(tokens.find(plaintext) for plaintext in plaintexts)
    assert await tokens.revoke(second.id) == second
    assert [token.id for token in tokens.list()] == [first.id]


@requirement("serving:tokens")
async def test_revoking_what_there_is_not_says_where_to_look() -> None:
    with pytest.raises(TokenError, match=r"'nobody'.*steersman token list"):
        await make_tokens().revoke("nobody")


@requirement("serving:tokens")
@pytest.mark.parametrize("name", ["", " laptop", "lap\ntop", "lap\u202etop", "x" * 65, "\ud800"])
async def test_a_label_or_subject_is_short_and_visible(name: str) -> None:
    tokens = make_tokens()
    for label, subject in ((name, "local"), ("laptop", name)):
        with pytest.raises(SettingsError, match=r"found .*; allowed are 1 to 64"):
            await tokens.new(label, subject)
    assert not tokens.list()


@requirement("serving:tokens")
async def test_a_token_file_that_cannot_be_used_is_named_with_a_remedy(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "file"):
        (tmp_path / "file").write_text("")
        with pytest.raises(TokenError, match=rf"{path}/token cannot be .*--state-dir"):
            await make_tokens().ensure_first(path)
