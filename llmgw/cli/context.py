"""What a verb works with: the server, the output, and the question before something dangerous."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused, Usage
from llmgw.api.targets import resolve
from llmgw.cli.output import Output


@dataclass(kw_only=True)
class Context:
    """One run of ctl."""

    args: argparse.Namespace
    out: Output
    _client: AdminClient | None = field(default=None)

    @property
    def client(self) -> AdminClient:
        """The server to talk to, found on first use; raises Usage when there is none."""
        if self._client is None:
            target = resolve(server=self.args.server, token_file=self.args.token_file)
            self._client = AdminClient(target)
        return self._client

    def confirm(self, sentence: Callable[[AdminClient], str]) -> None:
        """Ask before something dangerous, unless --yes was given; raises Usage off a terminal, Refused for a no.

        `sentence` says what will happen, in figures; it is made only when somebody can read it.
        """
        if self.args.yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Usage("this asks before it acts, and there is no terminal to ask on: pass --yes")
        self.out.say(sentence(self.client))
        print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Refused("nothing was changed")

    def done(self, result: object, message: str) -> None:
        """A change's outcome: the document for scripts, the sentence for people."""
        if self.out.json:
            self.out.document(result)
        else:
            self.out.say(message)


Handler = Callable[[Context], None]
