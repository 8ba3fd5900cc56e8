"""Who is live, and who owns whom.

An **agent** has an id and a durable session header. An **activation** is one live run of it; only the newest is
live. Ownership is by id and belongs to the activation: an activation that was entered under an owner stays owned
when the owner exits, and one that was entered without an owner is a root, whatever its agent's header says.

Looking one agent up takes constant time, however many live. Nothing crosses realms: ids belong to a realm, and so do
credentials.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from steersman.clock import Clock
from steersman.credentials import new_secret, secret_hash
from steersman.errors import HostError, ToolError
from steersman.leases import NEVER, LeaseQueue
from steersman.text import visible

LEASE_SECONDS: Final = 90.0
"""How long a leased activation outlives the end of its last open request or open question."""
UNANSWERED_LEASE_SECONDS: Final = 24 * 3600.0
"""The same while a question waits that its host shows between two requests (docs/decisions/0002)."""
MAX_OPEN_CALLS: Final = 256

PROFILE_NAMESPACES: Final = ("claude:", "codex:")

Profile = Literal["codex"]
Mode = Literal["continuable", "one-shot"]
Status = Literal["live", "stored", "finished"]
Outcome = Literal["completed", "failed", "aborted"]


@dataclass(frozen=True)
class SessionHeader:
    """What an agent's first entry settled for good."""

    parent_session: str
    """The owner's id at first entry; empty if there was none."""
    origin: Literal["root", "subagent"]
    delegation_depth: int


@dataclass(eq=False)
class Binding:
    """What requests arrive over: one stream connection, or one HTTP token. Never shared between principals."""

    realm: str
    label: str
    leased: bool
    """Whether activations entered over it need a lease, because nothing tells when their host is gone."""
    profile: Profile | None = None
    root: Activation | None = None
    """The root that calls without an identity belong to, once one came."""
    entered: int = 0
    """How many live activations a host entered over it."""


@dataclass(eq=False)
class Agent:
    """A conversation loop, live or not."""

    realm: str
    id: str
    label: str
    mode: Mode
    header: SessionHeader
    key_hash: str | None
    """The resume key's hash; none for agents that no host entered by name."""
    current: Activation | None = None
    finished: bool = False
    subagents: dict[str, Agent] = field(default_factory=dict[str, "Agent"])
    """Agents whose header names this one, in order of their first entry."""


@dataclass(eq=False)
class Activation:
    """One live run of an agent. Compared by identity: a stale object is not the live one."""

    agent: Agent
    owner_id: str | None
    """The id of the agent under which it was entered; none for a root."""
    bindings: set[Binding]
    """Where it lives: it ends when the last of them does."""
    entered_on: Binding | None
    """Where a host entered it by name; none for roots and profiled agents, which calls enter by themselves."""
    credential_hash: str | None = None
    leased: bool = False
    ended: bool = False
    open_calls: int = 0
    unanswered: int = 0
    """Questions that wait for the human between two requests."""
    lease_end: float = NEVER
    queued_for: float = NEVER
    """The moment at which the lease queue looks at it next."""

    @property
    def id(self) -> str:
        return self.agent.id

    @property
    def realm(self) -> str:
        return self.agent.realm


@dataclass(frozen=True)
class Entered:
    """What `enter` gives back to the host."""

    activation: Activation
    credential: str
    resume_key: str


class AgentRegistry:
    """The live agents of all realms in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._agents: dict[tuple[str, str], Agent] = {}
        self._by_credential: dict[str, Activation] = {}
        self._live: dict[Activation, None] = {}
        self._leases: LeaseQueue[Activation] = LeaseQueue()
        self._orphans: dict[tuple[str, str], list[Agent]] = {}
        self._listeners: list[Callable[[Activation], None]] = []
        self._nobody = Activation(
            Agent("", "", "", "one-shot", SessionHeader("", "root", 0), None), None, set(), None, ended=True
        )

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def nobody(self) -> Activation:
        """The dead activation that stands for a caller who is nobody."""
        return self._nobody

    def get(self, realm: str, agent_id: str) -> Agent | None:
        self._lapse()
        return self._agents.get((realm, agent_id))

    def is_live(self, activation: Activation) -> bool:
        """Whether exactly this activation is its agent's live one."""
        self._lapse()
        return not activation.ended and activation.agent.current is activation

    def is_root(self, activation: Activation) -> bool:
        return self.is_live(activation) and activation.owner_id is None

    def is_owned_by(self, agent: Agent, owner_id: str) -> bool:
        """Whether `agent` lives, entered under the agent of that id."""
        self._lapse()
        return agent.current is not None and agent.current.owner_id == owner_id

    def roots(self, realm: str) -> Sequence[Activation]:
        self._lapse()
        return [live for live in self._live if live.realm == realm and live.owner_id is None]

    def list(self, realm: str) -> Sequence[Agent]:
        """All agents of a realm, live or not, in order of their first entry."""
        self._lapse()
        return [agent for (of, _), agent in self._agents.items() if of == realm]

    def by_credential(self, realm: str, credential: str) -> Activation | None:
        """The activation, perhaps dead, that a credential names; none if it names none in this realm."""
        activation = self._by_credential.get(secret_hash(credential))
        return activation if activation is not None and activation.realm == realm else None

    def status(self, agent: Agent) -> Status:
        self._lapse()
        if agent.current is not None:
            return "live"
        return "finished" if agent.finished else "stored"

    def is_direct_subagent(self, agent: Agent, owner_id: str) -> bool:
        """Whether it was first entered under the agent of that id, and does not live as a root or under another."""
        self._lapse()
        descends = agent.header.origin == "subagent" and agent.header.parent_session == owner_id
        return descends and (agent.current is None or agent.current.owner_id == owner_id)

    def stored_subagents(self, owner: Agent) -> Sequence[Agent]:
        """The direct subagents of an agent that do not live and may be entered again."""
        self._lapse()
        return [agent for agent in owner.subagents.values() if agent.current is None and not agent.finished]

    def hosted(self, binding: Binding) -> bool:
        """Whether agents that a host entered live on this connection or token."""
        self._lapse()
        return binding.entered > 0

    # --- changes -----------------------------------------------------------------------------------------------------

    def on_end(self, listener: Callable[[Activation], None]) -> None:
        """Call `listener` with each activation, right after it ended."""
        self._listeners.append(listener)

    def enter(
        self,
        binding: Binding,
        *,
        owner: Activation | None = None,
        agent_id: str | None = None,
        resume_key: str | None = None,
        label: str = "",
        mode: Mode = "continuable",
        supersede: bool = False,
    ) -> Entered:
        """Make an agent live for a host, as its newest activation.

        Args:
            binding: where the host's request came from; its realm is the agent's.
            owner: the live activation that owns the new one; none makes a root.
            agent_id: a known or new id; a new random one if omitted.
            resume_key: for a known agent the key of its first entry; for a new one a key of the host's own choosing.
            label: what people and models call it.
            mode: `one-shot` agents are not entered again once they ended.
            supersede: replace the activation that is live under this id; it is dead at once.

        Raises:
            HostError: `CALLER_NOT_LIVE` for an owner that is not live in this realm, `RESUME_KEY_REQUIRED`,
                `AGENT_LIVE`, `AGENT_FINISHED`. Nothing has changed then.
            ToolError: `INVALID_ARGUMENTS` for an id or key of a wrong form, or an agent that would own itself, through
                others or at once.
        """
        _check_names(agent_id, resume_key)
        if owner is not None and (owner.realm != binding.realm or not self.is_live(owner)):
            raise HostError("CALLER_NOT_LIVE")
        agent = self.get(binding.realm, agent_id) if agent_id is not None else None
        if agent is not None:
            if agent.key_hash is None or resume_key is None or secret_hash(resume_key) != agent.key_hash:
                raise HostError("RESUME_KEY_REQUIRED")
            if agent.finished:
                raise HostError("AGENT_FINISHED")
            if agent.current is not None and not supersede:
                raise HostError("AGENT_LIVE")
            if owner is not None and self._owns(agent.id, owner):
                reason = f"at owner, found the credential of {owner.id!r}, which {agent.id!r} is or owns; "
                raise ToolError("INVALID_ARGUMENTS", reason=reason + "allowed is an agent that it does not own.")
        key = resume_key if resume_key is not None else new_secret()
        if agent is None:
            made_up = agent_id if agent_id is not None else self._new_id(binding.realm, "agent")
            agent = self._add(binding.realm, made_up, label, mode, owner.id if owner else None, secret_hash(key))
        elif label:
            agent.label = label
        credential = new_secret()
        activation = self._activate(
            agent, owner.id if owner else None, binding, entered_on=binding, leased=binding.leased
        )
        activation.credential_hash = secret_hash(credential)
        self._by_credential[activation.credential_hash] = activation
        return Entered(activation, credential, key)

    def enter_root(self, binding: Binding) -> Activation:
        """The root of a connection or token, entered on first use. It has no lease."""
        if binding.root is None or not self.is_live(binding.root):
            agent = self._add(
                binding.realm, self._new_id(binding.realm, "root"), binding.label, "continuable", None, None
            )
            binding.root = self._activate(agent, None, binding, entered_on=None, leased=False)
        return binding.root

    def enter_profiled(self, binding: Binding, agent_id: str, owner_id: str | None) -> Activation | None:
        """The agent that a host profile names, entered on first use and again after it ended.

        Returns:
            Its live activation; none if it lives under another owner than the one named now.
        """
        agent = self.get(binding.realm, agent_id)
        if agent is None:
            agent = self._add(binding.realm, agent_id, agent_id, "continuable", owner_id, None)
        if agent.current is None:
            return self._activate(agent, owner_id, binding, entered_on=None, leased=binding.leased)
        if agent.current.owner_id != owner_id:
            return None
        agent.current.bindings.add(binding)
        return agent.current

    def exit(self, activation: Activation) -> None:
        """End an activation; of one that is not live any more, nothing changes."""
        if self.is_live(activation):
            self._finish(activation)

    def close(self, binding: Binding) -> None:
        """End what lives on a connection that is gone."""
        for activation in [live for live in self._live if binding in live.bindings]:
            activation.bindings.discard(binding)
            if not activation.bindings:
                self.exit(activation)

    @contextmanager
    def hold(self, activation: Activation) -> Generator[None]:
        """Keep a leased activation alive while a request of its agent is open.

        Raises:
            ToolError: `LIMIT_EXCEEDED` if too many calls of it are open.
        """
        if self.is_live(activation) and activation.open_calls >= MAX_OPEN_CALLS:
            reason = f"the agent has {activation.open_calls} open calls; allowed are {MAX_OPEN_CALLS}."
            raise ToolError("LIMIT_EXCEEDED", reason=reason)
        activation.open_calls += 1
        activation.lease_end = NEVER
        try:
            yield
        finally:
            activation.open_calls -= 1
            self._start_lease(activation)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _new_id(self, realm: str, kind: str) -> str:
        while True:
            made_up = f"{kind}-{secrets.token_hex(6)}"
            if (realm, made_up) not in self._agents:
                return made_up

    def _add(
        self, realm: str, agent_id: str, label: str, mode: Mode, owner_id: str | None, key_hash: str | None
    ) -> Agent:
        owner = self._agents.get((realm, owner_id)) if owner_id is not None else None
        depth = 0 if owner_id is None else 1 + (owner.header.delegation_depth if owner is not None else 0)
        header = SessionHeader(owner_id or "", "root" if owner_id is None else "subagent", depth)
        agent = Agent(realm, agent_id, label, mode, header, key_hash)
        self._agents[realm, agent_id] = agent
        if owner is not None:
            owner.subagents[agent_id] = agent
        # A profile may name an agent before its owner was seen.
        for other in self._orphans.pop((realm, agent_id), ()):
            agent.subagents[other.id] = other
        if owner_id is not None and owner is None:
            self._orphans.setdefault((realm, owner_id), []).append(agent)
        return agent

    def _owns(self, agent_id: str, activation: Activation) -> bool:
        """Whether the agent of that id is `activation`'s, or owns it through others that live."""
        at: Activation | None = activation
        while at is not None:
            if agent_id in (at.id, at.owner_id):
                return True
            owner = self._agents.get((at.realm, at.owner_id)) if at.owner_id is not None else None
            at = owner.current if owner is not None else None
        return False

    def _activate(
        self, agent: Agent, owner_id: str | None, binding: Binding, *, entered_on: Binding | None, leased: bool
    ) -> Activation:
        if agent.current is not None:
            self._end(agent.current)
        activation = Activation(agent, owner_id, {binding}, entered_on, leased=leased)
        agent.current = activation
        self._live[activation] = None
        if entered_on is not None:
            entered_on.entered += 1
        self._start_lease(activation)
        return activation

    def _end(self, activation: Activation) -> None:
        activation.ended = True
        activation.agent.current = None
        del self._live[activation]
        if activation.credential_hash is not None:
            del self._by_credential[activation.credential_hash]
        if activation.entered_on is not None:
            activation.entered_on.entered -= 1
        for listener in self._listeners:
            listener(activation)

    def _finish(self, activation: Activation) -> None:
        """End an activation for good, not because a newer one took its place."""
        activation.agent.finished = activation.agent.mode == "one-shot"
        self._end(activation)

    def _start_lease(self, activation: Activation) -> None:
        if activation.leased and not activation.ended and not activation.open_calls:
            seconds = UNANSWERED_LEASE_SECONDS if activation.unanswered else LEASE_SECONDS
            self._leases.expire_at(activation, self._clock.now() + seconds)

    def _lapse(self) -> None:
        """End the activations whose lease ran out."""
        for activation in self._leases.lapsed(self._clock.now()):
            # Not finished: its host may only have been slow, and has the key to enter it again.
            self._end(activation)


def _check_names(agent_id: str | None, resume_key: str | None) -> None:
    if agent_id is not None:
        if not 0 < len(agent_id) <= 128 or visible(agent_id) != agent_id or agent_id.split() != [agent_id]:
            reason = "at id, found a text that is empty, too long or holds blanks or invisible characters; "
            raise ToolError("INVALID_ARGUMENTS", reason=reason + "allowed are 1 to 128 visible characters.")
        if agent_id.startswith(PROFILE_NAMESPACES):
            reason = "at id, found a name that belongs to a host profile; allowed is one that does not begin with "
            raise ToolError("INVALID_ARGUMENTS", reason=reason + " or ".join(PROFILE_NAMESPACES) + ".")
    if resume_key is not None and not 32 <= len(resume_key) <= 128:
        reason = f"at resume_key, found {len(resume_key)} characters; allowed are 32 to 128."
        raise ToolError("INVALID_ARGUMENTS", reason=reason)
