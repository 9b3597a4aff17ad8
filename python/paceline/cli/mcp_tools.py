"""Tools for AI assistants: each is a command, and is made from the parser of the command."""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from paceline.cli.json_output_schema import document_named
from paceline.cli.options import positive
from paceline.cli.parser_and_file_arguments import CommandParser, FileForm, plain_text
from paceline.errors import UnsupportedError

#: Commands that are not tools: `mcp` and `relay` do not end by themselves, `bench` uses the whole
#: machine, and `schema` is for programs that call the tools.
NO_TOOLS = ("bench", "mcp", "relay", "schema")
#: Options that a tool always passes to its command. A survey runs serially, because its worker
#: processes would not be confined.
_FIXED = {"survey": ("--backend", "serial")}
#: Sections of options that tools lack.
_SECTIONS_LEFT_OUT = ("figure", "while the simulation runs", "other options")
#: Options that tools lack: they concern the output, workers, caches and reports of a run, or allow
#: external files.
_LEFT_OUT = (
    *("json", "tsv", "checkpoint", "backend", "n_workers", "max_memory", "cache", "cache_size"),
    *("external", "timings", "report"),
)
#: If at least this many commands have the same option, the server describes the option once, and
#: the tools do not.
SHARED_BY = 10


class ToolOption(NamedTuple):
    """Option or positional argument of a command, as a property of a tool."""

    #: Name of the property in the tool's schema.
    name: str
    #: Option of the command line; empty for a positional argument.
    flag: str
    #: Help of the option.
    help: str
    #: JSON Schema of the value.
    schema: dict[str, object]
    #: True if the argument is required.
    needed: bool
    #: True if the option has no value on the command line, and is given or omitted.
    is_flag: bool
    #: True if the option may be repeated, with a value or a list of values each time.
    repeats: bool


class CommandTool(NamedTuple):
    """Command as a tool for assistants, with its options."""

    name: str
    summary: str
    options: list[ToolOption]
    #: Text of --help.
    help: str
    #: Options whose values name no file.
    texts: Collection[str]

    def schema(self, shared: Mapping[str, str]) -> dict[str, object]:
        """Return the JSON Schema of the arguments; options in `shared` have no description."""
        properties: dict[str, object] = {}
        for one in self.options:
            about = {} if shared.get(one.name) == one.help else {"description": one.help}
            properties[one.name] = {**one.schema, **about}
        return {
            "type": "object",
            "properties": properties,
            "required": [one.name for one in self.options if one.needed],
            "additionalProperties": False,
        }

    def command_line(self, arguments: Mapping[str, object]) -> list[str]:
        """Convert arguments, which fit the schema, to a command line."""
        words, places = [self.name, "--json", "--progress", "json"], list[str]()
        words += _FIXED.get(self.name, ())
        for one in self.options:
            value = arguments.get(one.name)
            if value is None or value is False:
                continue
            if not one.flag:
                places += _words(one.name, value)
            elif value is True:
                words.append(one.flag)
            elif one.repeats:
                assert isinstance(value, list)
                for item in value:
                    words += _option(one, item)
            else:
                words += _option(one, value)
        return [*words, *(["--", *places] if places else [])]


def _option(option: ToolOption, value: object) -> list[str]:
    """Return an option with its values; a single value is joined to it, and may begin with "-"."""
    if isinstance(value, list):
        return [option.flag, *_words(option.name, value)]
    return [f"{option.flag}={value}" if option.flag.startswith("--") else f"{option.flag}{value}"]


def _words(name: str, value: object) -> list[str]:
    """Return one or several values as words; raise an error for words that look like options."""
    words = [f"{one}" for one in (value if isinstance(value, list) else [value])]
    for word in words:
        is_number = word.lstrip("-").replace(".", "", 1).isdigit()
        if word.startswith("-") and not is_number:
            raise UnsupportedError(
                f"{name}: expected values that do not begin with '-', found {word!r}: write a file "
                f"as ./{word}"
            )
    return words


def command_parsers() -> dict[str, CommandParser]:
    """Return the parsers of all commands by name."""
    from paceline.cli.command_line import parser_of

    return _commands_of(parser_of())


def _commands_of(parser: CommandParser) -> dict[str, CommandParser]:
    """Return the parsers of the subcommands; empty for a command without them."""
    if parser._subparsers is None:
        return {}
    [action] = parser._subparsers._group_actions
    return dict(action.choices or {})


def documents() -> dict[str, type]:
    """Return the class that declares the JSON document of each command with --json, by command."""
    return {
        name: document
        for name, parser in command_parsers().items()
        for document in _documents_in(parser)
    }


def _documents_in(parser: CommandParser) -> Iterator[type]:
    """Yield the class of the JSON document of a command, or of each of its subcommands."""
    for action in parser._actions:
        if "document" in vars(action):
            yield document_named(vars(action)["document"])
            return
    for inner in _commands_of(parser).values():
        yield from _documents_in(inner)


def tools(only: Sequence[str] | None = None) -> dict[str, CommandTool]:
    """Make the tools of all commands that have --json, or of some of them."""
    parsers = command_parsers()
    known = [
        name for name, one in parsers.items() if name not in NO_TOOLS and [*_documents_in(one)]
    ]
    for name in only or ():
        if name not in known:
            raise UnsupportedError(
                f"--tools {name}: expected names of commands: {', '.join(known)}"
            )
    return {name: _tool(name, parsers[name]) for name in only or known}


def shared_options(found: Mapping[str, CommandTool]) -> dict[str, str]:
    """Return the help, by name, of options that `SHARED_BY` or more commands describe alike."""
    counts: dict[tuple[str, str], int] = {}
    for tool in found.values():
        for one in tool.options:
            key = one.name, one.help
            counts[key] = counts.get(key, 0) + 1
    return {name: text for (name, text), n in counts.items() if n >= SHARED_BY}


def _tool(name: str, parser: CommandParser) -> CommandTool:
    form = parser.get_default("form")
    options: list[ToolOption] = []
    for title, section in parser._sections.items():
        if title in _SECTIONS_LEFT_OUT:
            continue
        for action in section._group_actions:
            others = [one for one in parser._actions if one.dest == action.dest]
            is_second = len(others) > 1 and not _long(action)
            by_option = form is not None and action.dest == "files"
            if action.dest in _LEFT_OUT or is_second or by_option:
                continue
            options.append(_option_of(action, form))
    about, text = parser.description or "", parser.format_help()
    return CommandTool(name, about, options, text, parser.text_options)


def _long(action: argparse.Action) -> str:
    """Return the long option of an action; empty if it has none."""
    return next((one for one in action.option_strings if one.startswith("--")), "")


def _option_of(action: argparse.Action, form: FileForm | None) -> ToolOption:
    """Convert an argument of a command's parser to an option of a tool."""
    is_const = action.nargs == 0
    flag = _long(action) or next(iter(action.option_strings), "")
    name = _long(action)[2:].replace("-", "_") or action.dest
    extends = isinstance(action, argparse._ExtendAction)
    repeats = isinstance(action, argparse._AppendAction) and not extends
    schema: dict[str, object]
    if is_const:
        schema = {"type": "boolean"}
    else:
        schema = _schema_of_value(action)
        if action.nargs == argparse.OPTIONAL and flag:
            schema = {"anyOf": [schema, {"type": "boolean"}]}
        elif isinstance(action.nargs, int):
            n = action.nargs
            schema = {"type": "array", "items": schema, "minItems": n, "maxItems": n}
        elif action.nargs in (argparse.ONE_OR_MORE, argparse.ZERO_OR_MORE):
            schema = {"type": "array", "items": schema}
        if repeats:
            schema = {"type": "array", "items": schema}
    needed = action.required and bool(flag)
    needed |= not flag and action.nargs not in (argparse.OPTIONAL, argparse.ZERO_OR_MORE)
    needed |= form is not None and _needs_of(form).get(name) == "required"
    return ToolOption(name, flag, _help_of(action), schema, needed, is_const, repeats)


#: Arguments that a `FileForm` describes.
_OF_FORM = ("topology", "trajectory", "output")


def _needs_of(form: FileForm) -> dict[str, str]:
    """Return for each kind of file whether it is required; a structure needs no trajectory."""
    found = {name: str(form._asdict()[name]) for name in _OF_FORM}
    if form.alone or form.trajectory != "required" or not form.needed:
        found["trajectory"] = "optional"
    if not form.needed:
        found["topology"] = "optional"
    return found


def _schema_of_value(action: argparse.Action) -> dict[str, object]:
    """Return the JSON Schema of one value of an option."""
    if action.choices is not None:
        return {"enum": [*action.choices]}
    kind = action.type
    if kind is int or kind is positive:
        return {"type": "integer"}
    if kind is float:
        return {"type": "number"}
    if kind in (None, Path, plain_text):
        return {"type": "string"}
    return {"type": ["string", "number"]}


def _help_of(action: argparse.Action) -> str:
    """Return the help of an option with its default."""
    text = str(action.help or "").replace("%%", "%")
    for name in ("%(default)s", "%(default)g"):
        text = text.replace(name, f"{action.default}")
    return text
