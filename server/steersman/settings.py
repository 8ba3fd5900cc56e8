"""Settings: what a process is told by options and by `STEERSMAN_*` variables.

The pipe reads them too, so nothing heavy is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

LogLevel = Literal["debug", "info", "warning", "error"]
PlanModePolicy = Literal["tracked", "always"]
Profile = Literal["codex"]
ProviderName = Literal["elicitation", "console"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7437
DEFAULT_IDLE: Final = 600.0
"""Seconds without a connection after which a server in the background ends."""

T = TypeVar("T", bound=str)


class CommandError(Exception):
    """What a command could not do. The message is for its user: what happened, and what to do about it."""

    exit_code = 1


class SettingsError(CommandError):
    """A value of a wrong form. The message says where, what was found and what is allowed."""

    exit_code = 2


@dataclass(frozen=True)
class HostSettings:
    """What holds for one host: for everything that comes over its connection or its token."""

    profile: Profile | None = None
    providers: tuple[ProviderName, ...] = ("elicitation", "console")
    """Who is asked to reach the human, in this order; empty for nobody."""
    plan_mode: PlanModePolicy = "tracked"
    """Whether plan mode is tracked for each agent, or on for every root."""
    ask_timeout: float | None = None
    """Seconds after which an unanswered question is withdrawn; none waits for ever."""


DEFAULT_HOST_SETTINGS: Final = HostSettings()


@dataclass(frozen=True)
class Settings:
    """What every process of ours is told."""

    state_dir: Path
    log_level: LogLevel
    host: HostSettings
    standalone: bool = False
    """Whether the process serves by itself, with a state that ends with it."""


@dataclass(frozen=True)
class HttpSettings:
    """What a process that serves HTTP is told besides."""

    host: str
    port: int
    """0 for any free one."""
    allow_hosts: tuple[str, ...]
    """Names, besides `host`, under which clients may reach the server."""


class Source:
    """Options by name, and behind them the environment.

    Args:
        options: values by the name of the option without its dashes; None where it was not given.
        environ: the process environment. A variable that is empty counts as not set, except for the providers.
    """

    def __init__(self, options: Mapping[str, str | None], environ: Mapping[str, str]) -> None:
        self._options = options
        self.environ = environ

    def settings(self) -> Settings:
        """Read what every server process is told.

        Raises:
            SettingsError: for the first value of a wrong form.
        """
        standalone = self._flag("standalone")
        host = self.host()
        log_level = self.log_level()
        return Settings(
            state_dir=self.state_dir(),
            log_level=log_level,
            host=host,
            standalone=standalone,
        )

    def host(self) -> HostSettings:
        """Read what holds for one host. Raises as `settings`."""
        return HostSettings(
            plan_mode=self._choice("plan-mode", get_args(PlanModePolicy)) or "tracked",
            profile=self.host_profile(),
            providers=self._providers(),
            ask_timeout=self._ask_timeout(),
        )

    def log_level(self) -> LogLevel:
        """Read the least that is logged. Raises as `settings`."""
        return self._choice("log-level", get_args(LogLevel)) or "info"

    def idle(self) -> float | None:
        """After how many idle seconds a server in the background ends; none for never. Raises as `settings`."""
        value, where = self._value("idle")
        if not value:
            return DEFAULT_IDLE
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds >= 0):
            raise _refuse(where, value, "a number of seconds, or 0 for never")
        return seconds or None

    def passed_on(self, *options: str) -> dict[str, str]:
        """Those of the options that have a value, for a process that is not given our environment."""
        found = {option: self._value(option)[0] for option in options}
        return {option: value for option, value in found.items() if value}

    def http_settings(self) -> HttpSettings:
        """Read what a process that serves HTTP is told besides. Raises as `settings`."""
        names, _ = self._value("allow-host")
        return HttpSettings(
            host=self._value("host")[0] or DEFAULT_HOST,
            port=self._port(),
            allow_hosts=tuple(name.strip() for name in (names or "").split(",") if name.strip()),
        )

    def state_dir(self) -> Path:
        """Where the server of this user keeps what it has: the platform's directory for state, if nothing was said."""
        value, _ = self._value("state-dir")
        if value:
            return Path(value).expanduser().absolute()
        # Only the default needs to know the platform.
        import platformdirs

        return Path(platformdirs.user_state_dir("steersman"))

    def host_profile(self) -> Profile | None:
        """The host that names its callers. Raises as `settings`."""
        return self._choice("host-profile", get_args(Profile))

    # --- one by one --------------------------------------------------------------------------------------------------

    def _value(self, option: str) -> tuple[str | None, str]:
        """A value, if there is one, and how its user calls the place it stands in."""
        given = self._options.get(option)
        if given is not None:
            return given, f"--{option}"
        variable = variable_of(option)
        return self.environ.get(variable), variable

    def _flag(self, option: str) -> bool:
        value, where = self._value(option)
        if value and value.lower() not in ("1", "0", "true", "false", "yes", "no"):
            raise _refuse(where, value, "1, true, yes, 0, false or no")
        return bool(value) and value.lower() in ("1", "true", "yes")

    def _choice(self, option: str, allowed: Sequence[T]) -> T | None:
        value, where = self._value(option)
        if not value:
            return None
        for each in allowed:
            if value == each:
                return each
        *others, last = allowed
        raise _refuse(where, value, f"{', '.join(others)} or {last}" if others else last)

    def _providers(self) -> tuple[ProviderName, ...]:
        value, where = self._value("providers")
        if value is None:
            return HostSettings.providers
        names = [name.strip() for name in value.split(",") if name.strip()]
        known: Sequence[ProviderName] = get_args(ProviderName)
        found = tuple(each for name in names for each in known if name == each)
        if len(found) != len(names) or len(set(found)) != len(found):
            raise _refuse(where, value, f"each of these once, with commas between, or nothing: {', '.join(known)}")
        return found

    def _ask_timeout(self) -> float | None:
        value, where = self._value("ask-timeout")
        if not value:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            raise _refuse(where, value, "a number of seconds greater than 0")
        return seconds

    def _port(self) -> int:
        value, where = self._value("port")
        if not value:
            return DEFAULT_PORT
        if not (value.isascii() and value.isdigit() and int(value[:6]) <= 65535 and len(value) <= 5):
            raise _refuse(where, value, "a whole number from 0, for any free port, to 65535")
        return int(value)


def variable_of(option: str) -> str:
    """The environment variable that says the same as an option."""
    return "STEERSMAN_" + option.upper().replace("-", "_")


def _refuse(where: str, found: str, allowed: str) -> SettingsError:
    return SettingsError(f"{where}: found {found[:80]!a}; allowed is {allowed}.")


def is_loopback(host: str) -> bool:
    """Whether nothing but this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
