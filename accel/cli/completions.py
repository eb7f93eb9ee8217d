"""`accel completions`: what a shell completes, as a script that is made of the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

__all__ = ["SHELLS", "completions", "walk_commands"]

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_accel() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} word command="" words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
{commands}
        esac
    done
    case "$command $before" in
{choices}
    esac
    case "$command" in
{options}
    esac
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -o bashdefault -F _accel accel
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def completions(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script by which a shell completes commands, options and their choices.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        That of all commands.
    shell : str
        One of `SHELLS`.
    """
    if shell == "fish":
        return "\n".join(_fish(parser)) + "\n"
    script = _bash(parser)
    return _ZSH + script if shell == "zsh" else script


def walk_commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]]:
    """Yield each command with its parser and the commands below it."""
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
    yield path, parser, below
    for name, inner in below.items():
        yield from walk_commands(inner, (*path, name))


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _bash(parser: argparse.ArgumentParser) -> str:
    commands, choices, options = [], [], []
    for path, inner, below in walk_commands(parser):
        command = " ".join(path)
        for name in below:
            commands.append(f'            "{command} {name}") command="{" ".join((*path, name))}" ;;')
        words = [*below, *(option for action in _options(inner) for option in action.option_strings)]
        options.append(f'        "{command}") words="{" ".join(words)}" ;;')
        for action in _options(inner):
            if action.choices is not None:
                found = " ".join(map(str, action.choices))
                case = " | ".join(f'"{command} {option}"' for option in action.option_strings)
                reply = f'COMPREPLY=( $(compgen -W "{found}" -- "$current") ); return'
                choices.append(f"        {case}) {reply} ;;")
    return _BASH.format(commands="\n".join(commands), choices="\n".join(choices), options="\n".join(options))


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    for path, inner, below in walk_commands(parser):
        seen = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in path)
        if below:
            unseen = f"not __fish_seen_subcommand_from {' '.join(below)}"
            condition = f"{seen}; and {unseen}" if seen else unseen
            for name, command in below.items():
                told = _quoted(command.description or "")
                yield f"complete -c accel -n '{condition}' -f -a {name} -d {told}"
        for action in _options(inner):
            parts = ["complete -c accel"]
            if seen:
                parts.append(f"-n '{seen}'")
            for option in action.option_strings:
                parts.append(f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}")
            if action.choices is not None:
                parts.append(f"-x -a '{' '.join(map(str, action.choices))}'")
            elif action.nargs != 0:
                parts.append("-r")
            parts.append(f"-d {_quoted((action.help or '') % {'default': action.default})}")
            yield " ".join(parts)


def _quoted(text: str) -> str:
    return "'" + " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'") + "'"
