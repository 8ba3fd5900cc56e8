"""Without the guard: whoever asks, asks."""

from steersman.questions.service import UserQuestions
from steersman.registry import Activation


def admit(self: UserQuestions, agent: Activation) -> None:
    """Let everybody through."""


UserQuestions.admit = admit
