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

from steersman.agents import TOKEN_KEY, EnteredBy, Mode, Outcome, SessionHeader
from steersman.clock import Clock
from steersman.credentials import new_secret, secret_hash
from steersman.errors import HostError, ToolError
from steersman.journal import (
    AgentBound,
    AgentEnded,
    AgentEntered,
    AgentExited,
    AgentRestored,
    AgentUnbound,
    Event,
    Journal,
    MemoryJournal,
    Restored,
)
from steersman.leases import NEVER, LeaseQueue
from steersman.settings import DEFAULT_HOST_SETTINGS, HostSettings
from steersman.text import visible

LEASE_SECONDS: Final = 90.0
"""How long a leased activation outlives the end of its last open request or open question."""
UNANSWERED_LEASE_SECONDS: Final = 24 * 3600.0
"""The same while a question waits that its host shows between two requests (docs/decisions/0002)."""
MAX_OPEN_CALLS: Final = 256

PROFILE_NAMESPACES: Final = ("claude:", "codex:")

Status = Literal["live", "stored", "finished"]


@dataclass(eq=False)
class Binding:
    """What requests arrive over: one stream connection, or one HTTP token. Never shared between principals.

    It is found again under its key: a pipe that lost its server comes back to it, and so does a token.
    """

    realm: str
    key: str
    label: str
    leased: bool
    """Whether activations entered over it need a lease, because nothing tells when their host is gone."""
    host: HostSettings = DEFAULT_HOST_SETTINGS
    connections: int = 0
    """How many connections it is open on. Without one, all that lives on it has a lease."""
    root: Activation | None = None
    """The root that calls without an identity belong to, once one came."""
    entered: int = 0
    """How many live activations a host entered over it."""
    living: dict[Activation, None] = field(default_factory=dict["Activation", None])
    """What lives on it, in order of entry."""


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
    unanswered: int = 0
    """Questions that wait for the human between two requests."""

    @property
    def is_over(self) -> bool:
        """Whether it is not live, and nobody can enter it again."""
        can_return = self.key_hash is not None or self.id.startswith(PROFILE_NAMESPACES)
        return self.current is None and (self.finished or not can_return)


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
    lease_end: float = NEVER
    queued_for: float = NEVER
    """The moment at which the lease queue looks at it next."""

    @property
    def id(self) -> str:
        return self.agent.id

    @property
    def realm(self) -> str:
        return self.agent.realm

    @property
    def keeps(self) -> bool:
        """Whether it lives on without a lease: a connection of its own is open."""
        return not self.leased and any(binding.connections for binding in self.bindings)


@dataclass(frozen=True)
class Entered:
    """What `enter` gives back to the host."""

    activation: Activation
    credential: str
    resume_key: str


class AgentRegistry:
    """The live agents of all realms in this process."""

    def __init__(self, clock: Clock, journal: Journal | None = None) -> None:
        self._clock = clock
        self._journal = journal or MemoryJournal()
        self._journal.fold(self._apply)
        self._bindings: dict[str, Binding] = {}
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

    # --- connections -------------------------------------------------------------------------------------------------

    def connect(
        self, realm: str, key: str, *, label: str = "", leased: bool = False, host: HostSettings | None = None
    ) -> Binding:
        """What requests come over from now on: a new binding, or the one that has this key and the agents that live
        on it.

        Args:
            realm: the principal.
            key: names it for good.
            label: what the root of it is called.
            leased: whether agents that are entered over it need a lease, because nothing tells when their host is gone.
            host: what holds for the host at its other end.
        """
        self._lapse()
        binding = self._bindings.setdefault(key, Binding(realm, key, label, leased))
        binding.label, binding.leased, binding.host = label, leased, host or DEFAULT_HOST_SETTINGS
        binding.connections = 1 if leased else binding.connections + 1
        for activation in binding.living:
            self._start_lease(activation)
        return binding

    def disconnect(self, binding: Binding) -> None:
        """A connection broke off: what lives on it has a lease from here, in case that it comes back."""
        binding.connections -= 1
        for activation in binding.living:
            self._start_lease(activation)
        self._tidy(binding)

    def close(self, binding: Binding) -> None:
        """A connection was closed for good: what lives on it, and nowhere else, ends."""
        self._lapse()
        binding.connections -= 1
        if binding.connections:
            return
        for activation in list(binding.living):
            if activation.bindings == {binding}:
                self._journal.append(AgentEnded(activation.realm, activation.id, "closed"))
                self._tell(activation)
            else:
                self._journal.append(AgentUnbound(activation.realm, activation.id, binding.key))
                self._start_lease(activation)
        self._tidy(binding)

    def _tidy(self, binding: Binding) -> None:
        if not binding.connections and not binding.living and self._bindings.get(binding.key) is binding:
            del self._bindings[binding.key]

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
        credential = new_secret()
        activation = self._enter(
            binding,
            "host",
            agent_id if agent_id is not None else self._new_id(binding.realm, "agent"),
            owner.id if owner else None,
            label=label,
            mode=mode,
            credential_hash=secret_hash(credential),
            key_hash=secret_hash(key),
        )
        return Entered(activation, credential, key)

    def enter_root(self, binding: Binding) -> Activation:
        """The root of a connection or token, entered on first use. It has no lease."""
        if binding.root is None or not self.is_live(binding.root):
            return self._enter(binding, "call", self._new_id(binding.realm, "root"), None, label=binding.label)
        return binding.root

    def enter_profiled(self, binding: Binding, agent_id: str, owner_id: str | None) -> Activation | None:
        """The agent that a host profile names, entered on first use and again after it ended.

        Returns:
            Its live activation; none if it lives under another owner than the one named now.
        """
        agent = self.get(binding.realm, agent_id)
        if agent is None or agent.current is None:
            return self._enter(binding, "profile", agent_id, owner_id, label=agent_id)
        if agent.current.owner_id != owner_id:
            return None
        if binding not in agent.current.bindings:
            self._journal.append(AgentBound(agent.realm, agent.id, binding.key))
        return agent.current

    def exit(self, activation: Activation, outcome: Outcome, final: str = "") -> None:
        """End an activation, as its host says; of one that is not live any more, nothing changes."""
        if self.is_live(activation):
            self._journal.append(AgentExited(activation.realm, activation.id, outcome, final))
            self._tell(activation)

    def renew(self, activation: Activation) -> None:
        """Count its lease anew."""
        self._start_lease(activation)

    def stand_in(self, realm: str, agent_id: str) -> Activation:
        """The live activation of an agent, or a dead one that stands for it; for those who rebuild the past."""
        agent = self._agents[realm, agent_id]
        return agent.current or Activation(agent, None, set(), None, ended=True)

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

    def _enter(
        self,
        binding: Binding,
        by: EnteredBy,
        agent_id: str,
        owner_id: str | None,
        *,
        label: str,
        mode: Mode = "continuable",
        credential_hash: str | None = None,
        key_hash: str | None = None,
    ) -> Activation:
        agent = self._agents.get((binding.realm, agent_id))
        replaced = agent.current if agent is not None else None
        header = agent.header if agent is not None else self._header(binding.realm, owner_id)
        mode = agent.mode if agent is not None else mode
        key_hash = agent.key_hash if agent is not None else key_hash
        self._journal.append(
            AgentEntered(
                binding.realm, agent_id, owner_id, by, binding.key, credential_hash, header, label, mode, key_hash
            )
        )
        if replaced is not None:
            self._tell(replaced)
        entered = self._agents[binding.realm, agent_id].current
        assert entered is not None
        return entered

    def _tell(self, ended: Activation) -> None:
        for listener in self._listeners:
            listener(ended)

    def _header(self, realm: str, owner_id: str | None) -> SessionHeader:
        if owner_id is None:
            return SessionHeader("", "root", 0)
        owner = self._agents.get((realm, owner_id))
        return SessionHeader(owner_id, "subagent", 1 + (owner.header.delegation_depth if owner is not None else 0))

    def _owns(self, agent_id: str, activation: Activation) -> bool:
        """Whether the agent of that id is `activation`'s, or owns it through others that live."""
        at: Activation | None = activation
        while at is not None:
            if agent_id in (at.id, at.owner_id):
                return True
            owner = self._agents.get((at.realm, at.owner_id)) if at.owner_id is not None else None
            at = owner.current if owner is not None else None
        return False

    def _start_lease(self, activation: Activation) -> None:
        if activation.ended or activation.open_calls or activation.keeps:
            activation.lease_end = NEVER
        else:
            # On a pipe its host shows the question no longer than the pipe is there.
            waits = activation.agent.unanswered and activation.leased
            seconds = UNANSWERED_LEASE_SECONDS if waits else LEASE_SECONDS
            self._leases.expire_at(activation, self._clock.now() + seconds)

    def _lapse(self) -> None:
        """End the activations whose lease ran out."""
        for activation in self._leases.lapsed(self._clock.now()):
            bindings = list(activation.bindings)
            # Not finished: its host may only have been slow, and has the key to enter it again.
            self._journal.append(AgentEnded(activation.realm, activation.id, "lapsed"))
            self._tell(activation)
            for binding in bindings:
                self._tidy(binding)

    # --- the fold ----------------------------------------------------------------------------------------------------

    def _apply(self, event: Event | Restored) -> None:
        match event:
            case AgentEntered():
                self._apply_entry(event)
            case AgentBound():
                activation = self._agents[event.realm, event.agent_id].current
                if activation is not None:
                    binding = self._bound(event.realm, event.binding)
                    activation.bindings.add(binding)
                    binding.living[activation] = None
            case AgentUnbound():
                activation = self._agents[event.realm, event.agent_id].current
                if activation is not None:
                    binding = self._bound(event.realm, event.binding)
                    activation.bindings.discard(binding)
                    binding.living.pop(activation, None)
            case AgentExited() | AgentEnded():
                agent = self._agents[event.realm, event.agent_id]
                lapsed = isinstance(event, AgentEnded) and event.by == "lapsed"
                agent.finished = agent.mode == "one-shot" and not lapsed
                self._end(agent)
            case AgentRestored():
                self._add(event).finished = event.finished
            case _:
                pass

    def _apply_entry(self, event: AgentEntered) -> None:
        agent = self._agents.get((event.realm, event.agent_id))
        if agent is None:
            agent = self._add(event)
        agent.label = event.label or agent.label
        self._end(agent)
        binding = self._bound(event.realm, event.binding)
        activation = Activation(
            agent,
            event.owner_id,
            {binding},
            binding if event.by == "host" else None,
            event.credential_hash,
            leased=binding.leased and event.by != "call",
        )
        agent.current = activation
        self._live[activation] = None
        binding.living[activation] = None
        if activation.credential_hash is not None:
            self._by_credential[activation.credential_hash] = activation
        if event.by == "host":
            binding.entered += 1
        if event.by == "call":
            binding.root = activation
        self._start_lease(activation)

    def _add(self, event: AgentEntered | AgentRestored) -> Agent:
        agent = Agent(event.realm, event.agent_id, event.label, event.mode, event.header, event.key_hash)
        self._agents[event.realm, event.agent_id] = agent
        # A profile may name an agent before its owner was seen.
        for other in self._orphans.pop((event.realm, event.agent_id), ()):
            agent.subagents[other.id] = other
        if agent.header.origin == "subagent":
            owner = self._agents.get((event.realm, agent.header.parent_session))
            if owner is not None:
                owner.subagents[agent.id] = agent
            else:
                self._orphans.setdefault((event.realm, agent.header.parent_session), []).append(agent)
        return agent

    def _bound(self, realm: str, key: str) -> Binding:
        """The binding of that key; a pipe's is without a connection until it comes back, a token's has always one."""
        if key not in self._bindings:
            is_token = key.startswith(TOKEN_KEY)
            self._bindings[key] = Binding(realm, key, "", leased=is_token, connections=int(is_token))
        return self._bindings[key]

    def _end(self, agent: Agent) -> None:
        activation = agent.current
        if activation is None:
            return
        activation.ended = True
        agent.current = None
        del self._live[activation]
        if activation.credential_hash is not None:
            del self._by_credential[activation.credential_hash]
        if activation.entered_on is not None:
            activation.entered_on.entered -= 1
        for binding in activation.bindings:
            binding.living.pop(activation, None)


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
