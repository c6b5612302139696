"""The metrics of result sets, as the rows of metrics.toml declare them. The build makes its
registry of them too, so this needs nothing but Python."""

import functools
import re
import tomllib

from stowage_results.beside import beside
from stowage_results.plain_files import Refused, read_text

FILES = [beside("metrics.toml")]
UNITS = ("s", "B", "B/s", "FLOP/s", "1/s", "1", "J", "nat")
BETTER = ("higher", "lower", "neither")
REQUIRED = ("unit", "better", "from", "help")
OPTIONAL = ("samples", "due", "shown", "signed")

PART = r"(?:\w+|\*\*?)"
PATH = rf"{PART}(?:/{PART})*"
TERM = rf"median(?: of {PATH})?|its \w+"
FUNCTION = rf"function (\w+)((?: {PATH})*)"
CONDITION = rf"run|steps|(?:series|some|finite|partly_finite) {PATH}"
FROM = {"reading": "reading", "term": f"({TERM})", "quotient": f"(1 - )?({TERM}) / ({TERM})",
        "series": f"(last|least|sum|zeros|exp of last) of ({PATH})", "function": FUNCTION}
DUE = {"never": "never", "samples": rf"(always|samples|its \w+ > 0|has \w+|with {PATH})",
       "run": f"((?:{CONDITION})(?: and (?:{CONDITION}))*)", "function": FUNCTION}
SHOWN = {"nowhere": "nowhere", "column": r"([^:]+): (k|ms|s|T|GiB|nat)(, interval)?"}
IN_WORDS = {
    "from": "reading, median, median of PATH, its FACT, A / B, 1 - A / B, last, least, sum, zeros "
            "or exp of last of SERIES, or function NAME",
    "due": "always, samples, its FACT > 0, has FACT, with PATH, run, steps, series, some, finite "
           "or partly_finite SERIES, these joined by and, or function NAME",
    "shown": "HEADING: FORM of a metric without stars, with `, interval` if that has a column too"}


class Row:
    """One metric, of one name or of all that its stars stand for. `rule` and `when` are the pairs
    (form, words) of its `from` and `due`; `shown` has heading, form and whether it has an interval,
    or nothing."""

    def __init__(self, where, tag, fields):
        fields = {"due": "never", "shown": "nowhere", "signed": False, **fields}
        check_fields(where, fields)
        self.tag, self.unit, self.better = tag, fields["unit"], fields["better"]
        self.help, self.signed, self.samples = fields["help"], fields["signed"], fields["samples"]
        self.derived, self.due = fields["from"], fields["due"]
        self.rule = parsed(where, fields, "from", FROM)
        self.when = parsed(where, fields, "due", DUE)
        self.pattern, self.times = pattern(tag), pattern(self.samples)
        self.stars = self.pattern.groups
        nowhere = {"nowhere": SHOWN["nowhere"]}
        self.shown = parsed(where, fields, "shown", nowhere if self.stars else SHOWN)[1]
        read = re.findall(f"of ({PATH})", self.derived)
        for path in [*read, self.samples] if self.rule[0] in ("term", "quotient") else read:
            if pattern(path).groups > self.stars:
                raise Refused(f"{where}: from reads {path}, which has more stars than {tag}")
        if self.when[0] in ("samples", "function") and self.times.groups < self.stars:
            raise Refused(f"{where}: samples are {self.samples}, which has fewer stars than {tag}")


def check_fields(where, fields):
    missing = [key for key in REQUIRED if key not in fields]
    if missing:
        raise Refused(f"{where}: {missing[0]} is missing")
    for key, value in fields.items():
        if key not in REQUIRED + OPTIONAL:
            raise Refused(f"{where}: {key} is no key of a metric, these are: "
                          + ", ".join(REQUIRED + OPTIONAL))
        known = {"unit": UNITS, "better": BETTER, "signed": (True, False)}.get(key)
        if known and value not in known:
            raise Refused(f"{where}: {key} is {value!r}, wanted one of "
                          + ", ".join(map(str, known)))
        if not known and not (isinstance(value, str) and value):
            raise Refused(f"{where}: {key} is {value!r}, wanted words")
    if not re.fullmatch(PATH, fields["samples"]):
        raise Refused(f"{where}: samples is {fields['samples']!r}, wanted a path")


def parsed(where, fields, key, forms):
    for form, words in forms.items():
        if found := re.fullmatch(words, fields[key]):
            return form, found.groups()
    raise Refused(f"{where}: {key} is {fields[key]!r}, wanted {IN_WORDS[key]}")


def pattern(path):
    parts = ({"*": "([^/]+)", "**": "(.+)"}.get(part, part) for part in path.split("/"))
    return re.compile("/".join(parts))


def filled(path, parts):
    """The path with these parts for its stars."""
    left = iter(parts)
    return "/".join(next(left) if part[0] == "*" else part for part in path.split("/"))


def read_metrics(files):
    """The rows of these files, in order."""
    rows = {}
    for path in files:
        try:
            tables = tomllib.loads(read_text(path))
        except tomllib.TOMLDecodeError as error:
            raise Refused(f"{path}: {error}") from None
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise Refused(f"{path}: {name} stands in no table")
            samples = table.pop("samples", name)
            for last, fields in table.items():
                tag, where = f"{name}/{last}", f"{path}: {name}/{last}"
                if not re.fullmatch(PATH, tag) or not isinstance(fields, dict):
                    raise Refused(f"{where}: is no row {{unit = ..., better = ..., from = ..., "
                                  "help = ...} of a name of letters, digits, _ and stars")
                if tag in rows:
                    raise Refused(f"{where}: stands there twice")
                rows[tag] = Row(where, tag, {"samples": samples, **fields})
    return list(rows.values())


@functools.cache
def metrics():
    """The rows that sets are held to."""
    return read_metrics(FILES)


@functools.cache
def row_of(tag):
    """The row of a metric of a set and the parts that its stars stand for, or (None, ())."""
    for row in metrics():
        if found := row.pattern.fullmatch(tag):
            return row, found.groups()
    return None, ()


def call(functions, words, result, parts):
    """The value of the function that a row names, of those of a module."""
    name, arguments = words
    if name not in functions:
        raise Refused(f"metrics.toml names the function {name}, which is not there")
    return functions[name](result, *arguments.split(), *parts)
