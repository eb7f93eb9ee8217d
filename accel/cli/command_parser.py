"""The parser of one command: options in full, those that are misspelt named, and examples in its help."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, Final, NoReturn

__all__ = ["EXAMPLES", "CommandParser", "examples_of"]

EXAMPLES: Final = {
    "scan": (
        """accel scan s3://bucket/flights/ --where "carrier = 'UA' AND dep_delay > 60" -c flight,dep_delay""",
        """accel scan flights/ --where "dep_delay > 100" --order-by "dep_delay desc" --limit 10""",
        """accel scan 'data/year=2013/*.parquet' --limit 1000 -o sample.parquet""",
        """accel scan flights/ --where "carrier = 'HA'" --count""",
        """accel scan flights/ --aggregate distance=max --aggregate count_all --format markdown""",
    ),
    "explain": (
        """accel explain s3://bucket/flights/ --where "flight = 1545" --analyze""",
        """accel explain flights/ --order-by "dep_delay desc" --limit 10""",
        """accel explain flights/ --where "month = 1" --json""",
    ),
    "distinct": (
        "accel distinct s3://bucket/flights/ carrier",
        """accel distinct flights/ dest --where "carrier = 'HA'" --format json""",
    ),
    "inspect": (
        "accel inspect https://host/flights.parquet",
        "accel inspect flights.parquet --row-groups",
        "accel inspect flights/ --json",
    ),
    "embed": (
        "accel embed flights.parquet --index carrier=distinct --index flight=bitmap",
        "accel embed flights.parquet indexed.parquet --index flight=bloom:row-group",
        "accel embed s3://bucket/flights/ --index tailnum=bitmap",
    ),
    "optimize": (
        "accel optimize flights/ --sort-by carrier --sort-by dep_delay:descending",
        "accel optimize s3://bucket/flights/ --to s3://bucket/sorted/ --z-order origin,dest",
        "accel optimize flights/ --preset random-access --embed tailnum=bitmap",
    ),
    "index build": (
        "accel index build s3://bucket/flights/",
        "accel index build flights/ --to flights-index --index tailnum=keys --index carrier,flight=keys",
    ),
    "index refresh": ("accel index refresh s3://bucket/flights/_accel/",),
    "index compact": ("accel index compact flights-index",),
    "index vacuum": ("accel index vacuum flights-index --grace 48",),
    "index inspect": ("accel index inspect flights-index",),
    "index verify": ("accel index verify flights-index",),
    "completions": (
        "accel completions bash > ~/.local/share/bash-completion/completions/accel",
        "accel completions zsh > ~/.accel-completions && echo '. ~/.accel-completions' >> ~/.zshrc",
        "accel completions fish > ~/.config/fish/completions/accel.fish",
    ),
}
"""Command lines by command, as its help shows them."""


def examples_of(command: str) -> dict[str, Any]:
    """Return the arguments by which the parser of a command shows its examples."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[command])
    return {
        "epilog": f"example{'s' if len(EXAMPLES[command]) > 1 else ''}:\n{lines}\n",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


class CommandParser(argparse.ArgumentParser):
    """A parser that takes no beginning of an option for the option (`--wher` is not `--where`), and whose
    errors are one line, with what was meant."""

    def __init__(self, *given: Any, **keywords: Any) -> None:
        super().__init__(*given, **{"allow_abbrev": False, **keywords})

    def parse_known_args(  # type: ignore[override]  # argparse has overloads of no other meaning
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; those of a command that are unknown are refused with the usage of the command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._say_unknown(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line: the usage of a command of thirty options would hide it."""
        self.exit(2, f"accel: error: {message} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        meant = difflib.get_close_matches(str(value), names, 1)
        told = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(names)}"
        raise argparse.ArgumentError(action, f"there is no {value!r}: {told}")

    def _say_unknown(self, unknown: Sequence[str]) -> str:
        for each in unknown:
            name = each.partition("=")[0]
            if not name.startswith("-"):
                continue
            options = [option for option in self._option_string_actions if option.startswith("--")]
            meant = [option for option in options if option.startswith(name)] if len(name) > 3 else []
            meant = meant or difflib.get_close_matches(name, options, 1, 0.7)
            if not meant:
                return f"there is no option {name}"
            return f"there is no option {name}: did you mean {' or '.join(meant[:3])}?"
        return f"unrecognized arguments: {' '.join(unknown)}"
