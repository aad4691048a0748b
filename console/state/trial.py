"""A conversation with a model being tried: what was said, and how fast. No clock: moments come from the caller."""

from dataclasses import dataclass, field

from console.client.inference import Ended, Piece, Turn

MAX_ANSWER_CHARS = 400_000
"""An answer that is longer is ended: nobody reads on."""
MAX_ANSWER_LINES = 8000
MAX_EXCHANGES = 200
"""The oldest go first, from the screen and from what the model is sent."""


@dataclass(slots=True)
class Text:
    """Text that grows at its end, as lines."""

    lines: list[str] = field(default_factory=list)
    chars: int = 0

    def add(self, text: str) -> None:
        """Append."""
        first, *others = text.replace("\r\n", "\n").split("\n")
        if self.lines:
            self.lines[-1] += first
        else:
            self.lines.append(first)
        self.lines.extend(others[:MAX_ANSWER_LINES])
        self.chars += len(text)

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(slots=True)
class Exchange:
    """A question and its answer. Times are monotonic seconds."""

    question: str
    asked_at: float
    first_at: float | None = None
    last_at: float = 0.0
    pieces: int = 0
    thinking: Text = field(default_factory=Text)
    answer: Text = field(default_factory=Text)
    ended: Ended | None = None
    problem: str = ""
    """Why it has no end, as a sentence."""
    broken_off: bool = False
    """Ended by the reader."""

    @property
    def running(self) -> bool:
        """Whether more may come."""
        return self.ended is None and not self.problem and not self.broken_off

    @property
    def full(self) -> bool:
        """Whether it is longer than is kept."""
        chars, lines = (self.answer.chars + self.thinking.chars, len(self.answer.lines) + len(self.thinking.lines))
        return chars > MAX_ANSWER_CHARS or lines > MAX_ANSWER_LINES

    def hear(self, item: Piece | Ended, at: float) -> None:
        """What came, at `at`."""
        if isinstance(item, Ended):
            self.ended = item
            return
        self.first_at = at if self.first_at is None else self.first_at
        self.last_at = at
        self.pieces += 1
        (self.thinking if item.thinking else self.answer).add(item.text)

    @property
    def first_token_s(self) -> float | None:
        """From the question to the first text."""
        return None if self.first_at is None else self.first_at - self.asked_at

    @property
    def output_tokens(self) -> int:
        """As the engine counted them; until it says, a token a piece."""
        counted = self.ended.output_tokens if self.ended else None
        return self.pieces if counted is None else counted

    @property
    def tokens_per_s(self) -> float | None:
        """After the first token; none before the second."""
        if self.first_at is None or self.last_at <= self.first_at or self.output_tokens < 2:
            return None
        return (self.output_tokens - 1) / (self.last_at - self.first_at)


class Conversation:
    """Exchanges in their order."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def begin(self, question: str, at: float) -> Exchange:
        """A further question."""
        exchange = Exchange(question=question, asked_at=at)
        self.exchanges = [*self.exchanges[-MAX_EXCHANGES + 1 :], exchange]
        return exchange

    @property
    def last(self) -> Exchange | None:
        """The newest."""
        return self.exchanges[-1] if self.exchanges else None

    def turns(self) -> list[Turn]:
        """What the model is sent: questions that got an answer, with it, and the open one."""
        turns: list[Turn] = []
        for exchange in self.exchanges:
            answer = str(exchange.answer)
            if answer or exchange.running:
                turns.append(Turn(role="user", text=exchange.question))
            if answer:
                turns.append(Turn(role="assistant", text=answer))
        return turns
