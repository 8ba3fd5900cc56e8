"""Bearer tokens on disk: what is kept, who sees changes, and what a broken directory says."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.settings import SettingsError
from steersman.tokens import StateError, TokenStore
from tests.requirements import requirement

HELD_BY_ANOTHER = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
MAKE_TOKENS = """
import sys
from pathlib import Path
from steersman.tokens import TokenStore
store = TokenStore(Path(sys.argv[1]))
for number in range(20):
    store.new(f"{sys.argv[2]}-{number}")
store.ensure_first()
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@requirement("serving:tokens")
def test_the_first_start_makes_one_token_that_local_tools_can_read(state: Path) -> None:
    store = TokenStore(state)
    path = store.ensure_first()
    assert path == state / "token"
    [token] = store.list()
    assert (token.label, token.subject, token.profile) == ("local", "local", None)
    assert store.find(path.read_text().strip()) == token
    assert TokenStore(state).ensure_first().read_text() == path.read_text()
    assert len(store.list()) == 1


@requirement("serving:tokens")
def test_only_the_owner_can_read_what_is_kept(state: Path) -> None:
    before = os.umask(0)
    try:
        TokenStore(state).ensure_first()
    finally:
        os.umask(before)
    assert {path.name: mode(path) for path in state.iterdir()} == {
        "token": 0o600,
        "tokens.json": 0o600,
        "tokens.lock": 0o600,
    }
    assert mode(state) == 0o700


@requirement("serving:tokens")
def test_no_token_but_the_first_is_kept_in_plain_text(state: Path) -> None:
    plaintext = TokenStore(state).new("laptop", subject="guest", profile="codex")
    assert all(plaintext not in path.read_text() for path in state.iterdir())
    [kept] = json.loads((state / "tokens.json").read_text())["tokens"]
    assert (kept["label"], kept["subject"], kept["profile"]) == ("laptop", "guest", "codex")
    assert sorted(kept) == ["created", "id", "label", "profile", "sha256", "subject"]


@requirement("serving:tokens")
def test_a_running_server_sees_what_another_process_made_and_revoked(state: Path) -> None:
    running = TokenStore(state)
    assert running.find("nothing yet") is None
    elsewhere = TokenStore(state)
    plaintext = elsewhere.new("laptop")
    found = running.find(plaintext)
    assert found is not None
    assert found.label == "laptop"
    elsewhere.revoke("laptop")
    assert running.find(plaintext) is None


@requirement("serving:tokens")
def test_a_token_is_found_by_all_of_it_and_nothing_less(state: Path) -> None:
    store = TokenStore(state)
    plaintext = store.new("laptop")
    [token] = store.list()
    for other in ("", plaintext[:-1], plaintext + " ", token.id, token.sha256, "\ud800"):
        assert store.find(other) is None


@requirement("serving:tokens")
def test_a_revoked_first_token_takes_its_file_along_and_the_next_start_makes_another(state: Path) -> None:
    store = TokenStore(state)
    old = store.ensure_first().read_text().strip()
    store.revoke("local")
    assert not (state / "token").exists()
    new = store.ensure_first().read_text().strip()
    assert store.find(old) is None
    assert store.find(new) is not None


@requirement("serving:tokens")
def test_a_lost_token_file_is_made_again_and_copies_of_the_old_token_go_on_working(state: Path) -> None:
    store = TokenStore(state)
    copied = store.ensure_first().read_text().strip()
    (state / "token").unlink()
    store.ensure_first()
    assert store.find(copied) is not None


@requirement("serving:tokens")
def test_revoking_by_an_ambiguous_label_names_the_ids_and_revokes_nothing(state: Path) -> None:
    store = TokenStore(state)
    plaintexts = [store.new("laptop"), store.new("laptop")]
    first, second = store.list()
    with pytest.raises(StateError, match=f"{first.id}, {second.id}"):
        store.revoke("laptop")
    assert all(store.find(plaintext) for plaintext in plaintexts)
    assert store.revoke(second.id) == second
    assert [token.id for token in store.list()] == [first.id]


@requirement("serving:tokens")
def test_revoking_what_there_is_not_says_where_to_look(state: Path) -> None:
    with pytest.raises(StateError, match=r"'nobody'.*steersman token list"):
        TokenStore(state).revoke("nobody")


@requirement("serving:tokens")
@pytest.mark.parametrize("name", ["", " laptop", "lap\ntop", "lap\u202etop", "x" * 65, "\ud800"])
def test_a_label_or_subject_is_short_and_visible(state: Path, name: str) -> None:
    for label, subject in ((name, "local"), ("laptop", name)):
        with pytest.raises(SettingsError, match=r"found .*; allowed are 1 to 64"):
            TokenStore(state).new(label, subject=subject)
    assert not state.exists()


@requirement("serving:tokens")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tokens": [{"id": "token-1"}]}', b"\xff\xfe"])
def test_a_damaged_file_is_named_and_left_alone(state: Path, content: bytes) -> None:
    store = TokenStore(state)
    plaintext = store.new("laptop")
    path = state / "tokens.json"
    path.write_bytes(content)
    for use in (lambda: store.find(plaintext), store.list, lambda: store.new("other"), store.ensure_first):
        with pytest.raises(StateError, match=f"{path} is damaged.*Restore it"):
            use()
    assert path.read_bytes() == content


@requirement("serving:tokens")
def test_a_state_directory_that_is_a_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    for use in (TokenStore(path).ensure_first, lambda: TokenStore(path).new("laptop"), TokenStore(path).list):
        with pytest.raises(StateError, match=rf"{path}.*--state-dir"):
            use()


@requirement("serving:tokens")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_state_directory_still_lets_tokens_in_and_names_itself_on_change(state: Path) -> None:
    first = TokenStore(state).ensure_first()
    state.chmod(0o500)
    try:
        store = TokenStore(state)
        assert store.ensure_first() == first
        assert store.find(first.read_text().strip()) is not None
        with pytest.raises(StateError, match=rf"{state}.*cannot be written.*--state-dir"):
            store.new("laptop")
    finally:
        state.chmod(0o700)


@requirement("serving:tokens")
def test_a_directory_that_others_can_write_is_not_trusted(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o777)
    with pytest.raises(StateError, match=rf"chmod go-w {state}"):
        TokenStore(state).new("laptop")


@requirement("serving:tokens")
def test_a_writer_waits_for_the_one_before_it(state: Path) -> None:
    TokenStore(state).ensure_first()
    command = [sys.executable, "-c", HELD_BY_ANOTHER, str(state / "tokens.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with subprocess.Popen([sys.executable, "-c", MAKE_TOKENS, str(state), "a"]) as writer:
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(timeout=1)
            assert len(TokenStore(state).list()) == 1
            holder.stdin.close()
            assert writer.wait(timeout=10) == 0
    assert len(TokenStore(state).list()) == 21


@requirement("serving:tokens")
def test_of_two_first_starts_at_once_one_makes_the_token(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def after_another(lock: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        TokenStore(state).ensure_first()
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", after_another)
    store = TokenStore(state)
    path = store.ensure_first()
    [token] = store.list()
    assert store.find(path.read_text().strip()) == token


@requirement("serving:tokens")
def test_writers_in_several_processes_lose_nothing(state: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", MAKE_TOKENS, str(state), name]) for name in "abcd"]
    assert [writer.wait(timeout=20) for writer in writers] == [0] * 4
    labels = {token.label for token in TokenStore(state).list()}
    assert labels == {f"{name}-{number}" for name in "abcd" for number in range(20)} | {"local"}
    assert len(TokenStore(state).list()) == 81
