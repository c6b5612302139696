"""Defaults of the deck's keys, as the deck's reference lists them: what a set of an earlier version
ran with, which has no such key."""

import functools
import re

from stowage_results.beside import beside

ROW = re.compile(r"^\| `(\w+)` \| `(.*?)` \| ", re.MULTILINE)


@functools.lru_cache(maxsize=None)
def defaults():
    """{"model.head_dim": "0"}; empty where the reference is not beside the tools."""
    reference = beside("deck.md")
    if not reference.is_file():
        return {}
    sections = re.split(r"^## ", reference.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {f"{section.split(None, 1)[0]}.{name}": value.strip('"')
            for section in sections for name, value in ROW.findall(section)}


def equal(value, default):
    """Whether a key's value is what the reference writes."""
    if isinstance(value, str):
        return value == default
    try:
        return float(value) == float({"true": 1, "false": 0}.get(default, default))
    except ValueError:
        return False


def completed(config, other):
    """The keys of a deck, with those that another has beside them at their defaults. A key that no
    reference knows is left out."""
    known = defaults()
    added = {key: value for key, value in other.items()
             if key not in config and key in known and equal(value, known[key])}
    missing = {key: known[key] for key in other.keys() - config.keys() - added.keys()
               if key in known}
    return {**config, **added, **missing}
