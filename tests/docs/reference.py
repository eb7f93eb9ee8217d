"""Writes the reference parts of the documentation out of the docstrings: `python tests/docs/reference.py`.

A page has a place for them, `<!-- reference: accel.scan -->` to `<!-- end of reference -->`, and what lies
between is written anew. Of a class or a module the comment may name the only members, or those to leave out:
`accel.Metrics (without add, warn)`. The text is committed, so that it reads the same in a checkout as on the
site; a test holds it against the code.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import griffe

from accel.cache.cache import Cache
from accel.scanning import spec

__all__ = ["PAGES", "Entry", "above_of", "read_entries", "write_references"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(
        f"docs/api/{path.name}"
        for path in sorted((ROOT / "docs/api").glob("*.md"))
        if path.name != "index.md"
    ),
    "docs/options.md",
)
_BLOCK = re.compile(
    r"^(?P<begin><!-- reference: (?P<path>[\w.]+)(?: \((?P<only>[^)]*)\))? -->\n)"
    r"(?:.*?)(?P<end>^<!-- end of reference -->)",
    re.MULTILINE | re.DOTALL,
)
_PAGE = re.compile(r"(?<![\[`\w/])docs/(?P<page>[a-z-]+(?:/[a-z-]+)?)(?P<suffix>\.md)?\b")
"""A page of the documentation, or its folder."""
_WIDTH = 100
_TITLES = {
    "parameters": "Parameters",
    "other parameters": "Other parameters",
    "attributes": "Attributes",
    "returns": "Returns",
    "yields": "Yields",
    "raises": "Raises",
    "warns": "Warns",
    "examples": "Examples",
}


@dataclass(frozen=True)
class Entry:
    """One place of a page: the object's path, and which of its members are told; None for all."""

    path: str
    members: tuple[str, ...] | None
    without: tuple[str, ...]


def read_entries(page: str) -> list[Entry]:
    """The places of a page in order."""
    return [_entry(found) for found in _BLOCK.finditer(page)]


def write_references(page: str, *, above: str = "../") -> str:
    """The page with all that is written by this program as the code has it now; `above` leads to docs/."""
    package = _package()

    def fill(found: re.Match[str]) -> str:
        entry = _entry(found)
        lines = _tell_entry(_find(package, entry.path), entry)
        written = _PAGE.sub(lambda named: _link(named, above), "\n".join(lines).strip())
        return found["begin"] + "\n" + written + "\n\n" + found["end"]

    return _BLOCK.sub(fill, page)


def above_of(page: str) -> str:
    """What leads from a page to docs/."""
    return "../" * (page.count("/") - 1)


def _link(named: re.Match[str], above: str) -> str:
    """A link in place of the page that a docstring names."""
    page = named["page"] + (".md" if named["suffix"] else "/index.md")
    return f"[{named[0]}]({above}{page})"


@cache
def _package() -> Any:
    """The code of accel as griffe reads it, which takes seconds."""
    return griffe.load("accel", search_paths=[ROOT], docstring_parser="numpy")


def _entry(found: re.Match[str]) -> Entry:
    said = found["only"] or ""
    names = tuple(name.strip() for name in said.removeprefix("without ").split(",") if name.strip())
    if said.startswith("without "):
        return Entry(found["path"], None, names)
    return Entry(found["path"], names or None, ())


def _find(package: Any, path: str) -> Any:
    found = package[path.partition(".")[2]]
    return found.final_target if found.is_alias else found


def _tell_entry(found: Any, entry: Entry) -> Iterator[str]:
    if found.is_module:
        for name in entry.members or ():
            member = found[name]
            yield from _tell(member.final_target if member.is_alias else member, name, Entry(name, None, ()))
    else:
        spelled = entry.path.removeprefix("accel.") if entry.path.count(".") > 1 else entry.path
        yield from _tell(found, spelled.rpartition(".")[2] if entry.path.count(".") > 1 else spelled, entry)


def _tell(found: Any, title: str, entry: Entry) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    if found.is_function:
        _spell_out(found)
        yield from _code(_signature(found, found.name))
    elif found.is_class:
        own = found.members.get("__init__")
        bases = ", ".join(str(base) for base in found.bases)
        yield from _code(
            _signature(own, f"class {found.name}", without_self=True)
            if own is not None and own.is_function and _tells_parameters(found)
            else [f"class {found.name}" + (f"({bases})" if bases else "")]
        )
    else:
        yield from _code([f"{found.name}: {found.annotation}" if found.annotation else found.name])
    yield from _docstring(found)
    if found.is_class:
        yield from _members(found, title.rpartition(".")[2], entry)


def _spell_out(function: Any) -> None:
    """Have the arguments of a TypedDict in the signature and the docstring, as `help` shows them."""
    if not any(str(parameter.annotation).startswith("Unpack[") for parameter in function.parameters):
        return
    here = importlib.import_module(function.parent.path)
    face = getattr(here, function.name)
    constants = {id(value): name for name, value in vars(spec).items() if isinstance(value, Cache)}
    function.parameters = griffe.Parameters(
        *(
            griffe.Parameter(
                parameter.name,
                annotation=str(parameter.annotation),
                kind=griffe.ParameterKind(parameter.kind.description),
                default=None
                if parameter.default is parameter.empty
                else constants.get(id(parameter.default), repr(parameter.default)),
            )
            for parameter in inspect.signature(face).parameters.values()
        )
    )
    function.docstring = griffe.Docstring(inspect.getdoc(face) or "", parent=function)


def _members(owner: Any, title: str, entry: Entry) -> Iterator[str]:
    members = [
        member
        for name, member in owner.members.items()
        if not name.startswith("_")
        and not member.is_alias
        and name not in entry.without
        and (
            name in entry.members if entry.members is not None else member.has_docstring or _is_field(member)
        )
    ]
    values = [member for member in members if not member.is_function]
    for member in values:
        yield _value(member)
    if values:
        yield ""
    for member in members:
        if member.is_function:
            yield f"#### {title}.{member.name}"
            yield ""
            yield from _code(_signature(member, member.name, without_self=True))
            yield from _docstring(member)


def _value(member: Any) -> str:
    line = f"- **`{member.name}`**"
    if member.annotation is not None and not _is_enum(member.parent):
        line += f": *{_escaped(str(member.annotation))}*"
    if "class-attribute" in member.labels and member.value is not None:
        line += f" = `{_one_line(str(member.value))}`"
    text = _one_line(_text_of(member))
    return f"{line}: {text}" if text else line


def _is_field(member: Any) -> bool:
    """Of a class of values; those of the kinds of index are for whoever reads the code."""
    return member.is_attribute and member.annotation is not None and not member.parent.bases


def _tells_parameters(found: Any) -> bool:
    """Whether it is for callers to make one."""
    return any(section.kind.value == "parameters" for section in _sections(found))


def _is_enum(found: Any) -> bool:
    return any("Enum" in str(base) for base in found.bases)


def _text_of(found: Any) -> str:
    return found.docstring.value if found.docstring is not None else ""


def _sections(found: Any) -> Sequence[Any]:
    if found.docstring is None:
        return ()
    sections: Sequence[Any] = found.docstring.parse("numpy", warn_unknown_params=False, warnings=False)
    return sections


def _docstring(found: Any) -> Iterator[str]:
    for section in _sections(found):
        kind = section.kind.value
        if kind == "text":
            yield section.value.strip()
            yield ""
            continue
        yield f"**{section.title or _TITLES[kind]}**"
        yield ""
        if kind == "admonition":
            yield section.value.description.strip()
            yield ""
            continue
        if kind == "examples":
            for _, text in section.value:
                yield from _code(text.splitlines())
            continue
        # Several names with one text are told apart by griffe alone, which gives them all the first one's
        # type.
        for _, alike in groupby(section.value, key=lambda item: item.description):
            yield _item(kind, list(alike))
        yield ""


def _item(kind: str, items: Sequence[Any]) -> str:
    names = ", ".join(f"**`{item.name}`**" for item in items) if kind not in ("raises", "warns") else ""
    told = str(items[0].annotation) if items[0].annotation is not None and len(items) == 1 else ""
    if kind in ("raises", "warns"):
        kinds = [str(item.annotation).strip("()") for item in items]
        head = ", ".join(f"`{name.strip()}`" for name in ",".join(kinds).split(","))
    elif names != "**``**" and told:
        head = f"{names}: *{_escaped(told)}*"
    else:
        head = f"*{_escaped(told)}*" if told else names
    text = "\n  ".join(line.strip() for line in items[0].description.strip().splitlines())
    return f"- {head}: {text}" if text else f"- {head}"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("[", "\\[")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _code(lines: Sequence[str]) -> Iterator[str]:
    yield "```text"
    yield from lines
    yield "```"
    yield ""


def _signature(function: Any, name: str, *, without_self: bool = False) -> list[str]:
    parameters: list[str] = []
    starred = False
    for parameter in function.parameters:
        kind = parameter.kind.value
        if (without_self and parameter.name in ("self", "cls")) or str(parameter.annotation) == "Never":
            continue
        if kind == "keyword-only" and not starred:
            parameters.append("*")
            starred = True
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        starred = starred or star == "*"
        told = f"{star}{parameter.name}" + (f": {parameter.annotation}" if parameter.annotation else "")
        default = None if star else parameter.default
        parameters.append(told if default is None else f"{told} = {default}")
    end = "" if function.returns is None or name.startswith("class ") else f" -> {function.returns}"
    before = "async " if "async" in function.labels else ""
    line = f"{before}{name}({', '.join(parameters)}){end}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{before}{name}(", *(f"    {parameter}," for parameter in parameters), f"){end}"]


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        above = above_of(page)
        path.write_text(write_references(path.read_text("utf-8"), above=above), "utf-8")
