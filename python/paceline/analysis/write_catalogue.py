"""Write the catalogue of analyses from the declarations of their classes: `make catalogue`."""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from paceline._util.json_types import JsonObject
from paceline.analysis.base import AnalysisBase
from paceline.contract.analysis_declaration import ON_STRUCTURE, Declaration, Option
from paceline.contract.read_catalogue import PAGES

#: Marker lines on a page of the manual, before and after the text from the catalogue.
MARKS = "<!-- table of make catalogue -->", "<!-- end of the table -->"
#: Parameters that are neither options of commands nor recorded.
OF_RUNS = ("verbose", "kwargs")
_PACKAGE = "paceline.analysis."
#: Regular expression for a unit in a description, after a comma or in parentheses.
_UNIT = re.compile(r"[,(] ?((?:Å|ps|K|degrees|frames|e|g|u)(?:[²³⁻¹ /]|Å|ps|cm|e)*)(?=[,;.)]|$)")


def entry_of(cls: type) -> JsonObject:
    """Describe a declared class: its declaration, and properties of the class itself.

    All values can be written as JSON. In addition to the fields of `Declaration`, an entry has
    `select_otherwise` (selections that are tried after `select`), `class`, `parameters` (name,
    type, default, choices, unit, help), `results` (name, type, unit, help), `needs`, and
    `in_batteries`. Options of the command have all arguments of `argparse`.
    """
    declared: Declaration = vars(cls)["declaration"]
    sections = sections_of(inspect.getdoc(cls) or "")
    parameters = _parameters_of(cls, sections.get("Parameters", {}))
    first, *others = (declared.select,) if isinstance(declared.select, str) else declared.select
    found = asdict(declared) | {
        "select": first,
        "select_otherwise": others,
        "title": declared.title or re.split("[,:] ", declared.summary)[0],
        "class": f"{cls.__module__}.{cls.__qualname__}".removeprefix(_PACKAGE),
        "description": declared.description or sections["Summary"]["text"],
        "options": [_option_of(cls, one, parameters) for one in declared.options],
        "batteries": [
            asdict(one) | {"name": one.name or declared.name} for one in declared.batteries
        ],
        "parameters": list(parameters.values()),
        "results": [
            {"name": name.removeprefix("results."), "type": kind, **_help_and_unit(text)}
            for name, (kind, text) in sections.get("Attributes", {}).items()
            if name.startswith("results.")
        ],
        "needs": [*_needs_of(cls), *declared.needs],
        "files": [
            *dict.fromkeys((*declared.files, *(ON_STRUCTURE if declared.on_structure else ())))
        ],
        "in_batteries": declared.in_batteries and issubclass(cls, AnalysisBase),
    }
    return json.loads(json.dumps(found))


def entries() -> list[JsonObject]:
    """Describe all declared classes of `paceline.analysis`, in the order of the manual."""
    found = [entry_of(cls) for cls in _declared_classes()]
    pages = [*PAGES]
    for one in found:
        if _page_of(one) not in pages:
            raise ValueError(f"{one['class']}: section {one['section']!r} is not in {pages}")
    return sorted(found, key=lambda one: (pages.index(_page_of(one)), one["name"]))


def _page_of(entry: Mapping[str, Any]) -> str:
    page: str = entry["section"].partition("#")[0]
    return page


def _declared_classes() -> Iterator[type]:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        # Skip modules without declarations: they may import the catalogue, which may not exist.
        if "    declaration = Declaration(" not in path.read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(_PACKAGE + path.stem)
        for value in vars(module).values():
            is_own = isinstance(value, type) and value.__module__ == module.__name__
            if is_own and vars(value).get("declaration") is not None:
                yield value


def sections_of(text: str) -> dict[str, JsonObject]:
    r"""Split a numpydoc docstring into its summary, and type and text by name in each section.

    Examples
    --------
    >>> found = sections_of("It.\n\nParameters\n----------\na, b : int\n    Two numbers.")
    >>> found["Summary"], found["Parameters"]["b"]
    ({'text': 'It.'}, ('int', 'Two numbers.'))
    """
    pieces = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    found: dict[str, JsonObject] = {"Summary": {"text": pieces[0].partition("\n\n")[0].strip()}}
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        items = re.findall(r"^(\S.*?) : (.*)\n((?:(?: +.*)?(?:\n|\Z))*)", body, re.MULTILINE)
        found[title] = {
            name: (kind, " ".join(explained.split()))
            for names, kind, explained in items
            for name in names.split(", ")
        }
    return found


def _help_and_unit(text: str) -> JsonObject:
    """Return the first sentence of a parameter's description as help text, and its unit."""
    sentence = re.split(r"(?<=[.:])\s+(?=[A-Z`$\"])", text)[0].rstrip(".")
    unit = _UNIT.search(sentence)
    return {"unit": unit[1] if unit else None, "help": sentence.replace("`", "")}


def _parameters_of(cls: type, described: Mapping[str, Any]) -> dict[str, JsonObject]:
    """Describe the parameters of a class, by name."""
    found = {}
    for name, one in inspect.signature(cls, eval_str=True).parameters.items():
        if name in OF_RUNS:
            continue
        kind, text = described.get(name, ("", ""))
        default = None if one.default is one.empty else one.default
        types = _types_of(one.annotation)
        if float in types and isinstance(default, int) and not isinstance(default, bool):
            default = float(default)
        found[name] = {
            "name": name,
            "type": kind,
            "required": one.default is one.empty,
            "default": default if _is_plain(default) else repr(default),
            "choices": [one for one in types if isinstance(one, str)],
            **_help_and_unit(text),
        }
    return found


def _is_plain(value: object) -> bool:
    """Check whether a value can be written as JSON."""
    return isinstance(value, str | int | float | bool | tuple | list | NoneType)


def _types_of(annotation: object) -> list[object]:
    """List the types in an annotation, and the values of a `Literal`."""
    if get_origin(annotation) in (Union, UnionType):
        return [one for part in get_args(annotation) for one in _types_of(part)]
    if get_origin(annotation) is Literal:
        return [one for one in get_args(annotation) if one is not None]
    return [annotation]


def _option_of(
    cls: type, declared: str | Option, parameters: Mapping[str, JsonObject]
) -> JsonObject:
    """Return the flag of a command's option, and its arguments for argparse."""
    option = Option(declared) if isinstance(declared, str) else declared
    keyword = option.keyword
    known = parameters.get(keyword, {})
    default = known.get("default") if option.default is None else option.default
    flag = f"--{keyword.replace('_', '-')}"
    found: JsonObject = {"default": default}
    if isinstance(default, bool) and option.action is None and option.nargs is None:
        found["action"] = "store_false" if default else "store_true"
        flag = f"--no-{flag[2:]}" if default else flag
    elif option.action is None:
        found |= _value_of(cls, keyword, known, default)
    given = {key: vars(option)[key] for key in ("choices", "type", "nargs", "metavar", "action")}
    found |= {key: value for key, value in given.items() if value is not None}
    if option.const is not None:
        found["const"] = option.const
    shown = "" if default is None or isinstance(default, bool) else " [%(default)s]"
    shown = " [%(default)g]" if isinstance(default, float) else shown
    explained = known.get("help", "").replace("%", "%%")
    if explained[1:2].islower():  # not an acronym
        explained = explained[0].lower() + explained[1:]
    found["help"] = option.help or explained + shown
    if not (option.help or explained):
        raise ValueError(f"{cls.__name__}: option {keyword} has no help, and no docstring")
    return {"keyword": keyword, "flag": option.flag or flag, **found}


def _value_of(cls: type, keyword: str, known: Mapping[str, Any], default: Any) -> JsonObject:
    """Return the arguments of argparse for the type of a parameter."""
    if known.get("choices"):
        return {"choices": known["choices"]}
    one = inspect.signature(cls, eval_str=True).parameters.get(keyword)
    types = [] if one is None else _types_of(one.annotation)
    if float in types:
        unit = known["unit"] or "X"
        return {"type": "float", "metavar": unit.upper() if unit.isascii() else unit}
    if int in types:
        return {"type": "int" if default == 0 else "positive", "metavar": "N"}
    return {}


def _needs_of(cls: type) -> list[str]:
    """List, in words, the properties of a trajectory that an analysis needs."""
    known = cls if issubclass(cls, AnalysisBase) else AnalysisBase
    found = {
        "whole molecules": known.needs_whole,
        "superposed frames": known.needs_fit,
        "one location of each atom": known.needs_one_location,
    }
    fields = [name for name in known.fields if name != "positions"]
    least = known.LEAST_FRAMES
    some = [f"{least} frames"] if least > 1 else []
    return [*(name for name, is_needed in found.items() if is_needed is True), *fields, *some]


def text() -> str:
    """Return the catalogue as the text of its file: JSON with one line per value."""
    return json.dumps(entries(), indent=1, ensure_ascii=False) + "\n"


def table() -> str:
    """Return the table of all analyses for the manual."""
    lines, known = ["| to compute | class | command |", "| --- | --- | --- |"], ""
    for one in entries():
        if (page := _page_of(one)) != known:
            lines.append(f"| **[{PAGES[page]}]({page})** | | |")
            known = page
        classes = ", ".join(f"`{name}`" for name in (one["class"], *one["variants"]))
        command = f"`{one['name']}`" if one["has_command"] else f"in batteries `{one['name']}`"
        lines.append(f"| [{one['summary']}]({one['section']}) | {classes} | {command} |")
    return "\n".join(lines)


def reference() -> str:
    """Return the reference of all declared classes and their variants, by page of the manual."""
    lines, known = list[str](), ""
    for one in entries():
        if (page := _page_of(one)) != known:
            lines += [f"## {PAGES[page]}", ""]
            known = page
        name, module = one["class"], one["class"].rpartition(".")[0]
        for path in (name, *(f"{module}.{name}" for name in one["variants"])):
            members = ", ".join(_methods_of(path))
            shown = f"[{members}]" if members else "false"
            options = f"    options: {{ heading_level: 3, members: {shown} }}"
            lines += [f"::: {_PACKAGE}{path}", options, ""]
    return "\n".join(lines).rstrip()


def _methods_of(path: str) -> list[str]:
    """List the methods of an analysis that users call; a function has none."""
    module, _, name = path.rpartition(".")
    found = vars(importlib.import_module(_PACKAGE + module))[name]
    return [
        name
        for name, value in (vars(found) if isinstance(found, type) else {}).items()
        if name[0] != "_"
        and inspect.isfunction(value)
        and inspect.getdoc(value)
        and (name == "run" or not hasattr(AnalysisBase, name))
    ]


def with_text(page: str, made: str) -> str:
    """Insert text between the marker lines of a page."""
    before, _, rest = page.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    return "\n".join([before + MARKS[0], "", made, "", MARKS[1] + after])


#: Functions that create the generated text of each page of the manual.
TEXTS = {"analysing.md": table, "api/analyses.md": reference}


if __name__ == "__main__":
    for manual in sys.argv[1:]:
        for name, make in TEXTS.items():
            page = Path(manual, name)
            made = with_text(page.read_text(encoding="utf-8"), make())
            page.write_text(made, encoding="utf-8")
    if not sys.argv[1:]:
        sys.stdout.buffer.write(text().encode())
