"""Command lines whose complaints are sentences: what is wrong, what would do, and where help is.

A word that begins with a dash and a digit is a value and never an option: whoever reads the figure says what is wrong
with it. No option may be shortened, as what a short form means would change with the next option.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from llmgw.cli.launch import USAGE_EXIT
from llmgw.core.near import MOST_NAMED, near, or_those

MAX_SHOWN = 60
"""Characters of a wrong word that a complaint repeats."""
_FIGURE = re.compile(r"-\.?[0-9]")
_NO_FIGURE = re.compile(r"invalid (int|float) value: (.*)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """The parser of every command of llmgw."""

    def __init__(
        self,
        *,
        prog: str | None = None,
        description: str | None = None,
        epilog: str | None = None,
        parents: Sequence[argparse.ArgumentParser] = (),
        add_help: bool = True,
    ) -> None:
        """As argparse has it, without abbreviations. Options of `parents` are not what a complaint proposes."""
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            parents=[*parents],
            add_help=add_help,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self._inherited = {action.dest for parent in parents for action in parent._actions} | {"help"}
        self._negative_number_matcher = _FIGURE

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; exit 2."""
        self.exit(USAGE_EXIT, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]  # argparse has it in three forms, of which none but this is called
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Every word is known, or the parser that it came to says what it does know."""
        try:
            known, over = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            self.error(_complaint(error))
        if over:
            self.error(self._no_place_for(over[0]))
        return known, over

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = or_those(nearest(str(value), choices)) or f"; known are {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"{_shown(str(value))} is not known{hint}")

    def _no_place_for(self, word: str) -> str:
        if word.startswith("-") and not _FIGURE.match(word):
            name = word.partition("=")[0]
            return f"there is no option {_shown(name)}{or_those(nearest(name, self._option_string_actions))}"
        own = [action for action in self._actions if action.dest not in self._inherited]
        words = " ".join(_value_of(action) for action in own if not action.option_strings)
        valued = [action for action in own if action.option_strings and action.nargs is None]
        options = ", ".join(f"{action.option_strings[-1]} {_value_of(action)}" for action in valued[:MOST_NAMED])
        taken = " and ".join(part for part in (words, f"options such as {options}" if options else "") if part)
        return f"there is no place for {_shown(word)}: it takes {taken or 'no word'}"


def nearest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """What `word` is the beginning of, else what is written much like it."""
    every = sorted(known)
    begun = [name for name in every if word.strip("-") and name.startswith(word)]
    return tuple(begun[:MOST_NAMED]) or near(word, every)


def _complaint(error: argparse.ArgumentError) -> str:
    """The argument and what is wrong with it; where argparse's own words are no sentence, others."""
    name, said = error.argument_name or "", error.message
    if said.startswith("expected "):
        return f"{name} needs a value after it; one that begins with a dash is written {name.rpartition('/')[2]}=VALUE"
    if said.startswith("ignored explicit argument "):
        return f"{name} takes no value"
    if match := _NO_FIGURE.fullmatch(said):
        return f"{name}: {match[2][: MAX_SHOWN + 2]} is no {'whole number' if match[1] == 'int' else 'number'}"
    return f"{name}: {said}" if name else said


def _value_of(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    return f"{name}…" if action.nargs in ("+", "*") else f"[{name}]" if action.nargs == "?" else name


def _shown(word: str) -> str:
    return repr(word[:MAX_SHOWN])
