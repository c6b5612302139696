"""Puts sources together that clang-tidy can read as one, so that their headers are read once.

A batch is a file that includes some sources. They have the same switches, and no two of them give a
name of their own (in an unnamed namespace, a macro, an alias) to different things.
"""

import re

BATCH = 12  # more gain little: what is left is the sources' own
OWN = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^using (?:namespace )?(?:[\w:]*::)?(\w+)[^;]*;", re.MULTILINE)
DEFINE = re.compile(r"^#define (\w+).*", re.MULTILINE)
# At the beginning of a line, behind what stands before a name: `int sum(int a`, `struct Row {`.
NAME = re.compile(r"^(?!\s|#|//|\}|using |template).*?\b(\w+)(\(.*| =|\{| \{|;|\[)", re.MULTILINE)
PARAMETER = re.compile(r"(?<=[\w>&*])\s+\w+(?=\s*[,)=])")  # its name, behind its type


def own_names(text):
    """{name: what it is} of what a source calls so by itself; overloads have names of their own."""
    names = {}
    for pattern in (ALIAS, DEFINE):
        names.update({match.group(1): match.group(0) for match in pattern.finditer(text)})
    for block in OWN.findall(text):
        for name, behind in NAME.findall(block):
            if behind.startswith("("):
                name += PARAMETER.sub("", behind.split(" {")[0])
            names[name] = id(block)
    return names


def switches(arguments, source):
    """What of a command decides how a source is read: all but the source and what is made of it."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif argument not in ("-c", "-MD", source):
            kept.append(argument)
    return tuple(kept)


def batches(entries, size=BATCH):
    """Lists of entries of a compilation database that one file may include, in the order given."""
    made = []  # (switches, names, entries)
    for entry in entries:
        key = switches(entry["arguments"], entry["file"])
        with open(entry["file"], encoding="utf-8", errors="replace") as file:
            names = own_names(file.read())
        for other_key, taken, members in made:
            if (other_key == key and len(members) < size and
                    all(taken.get(name, what) == what for name, what in names.items())):
                taken.update(names)
                members.append(entry)
                break
        else:
            made.append((key, names, [entry]))
    return [members for _, _, members in made]


def batch_entry(members, path):
    """Writes the file of a batch to `path`; returns its entry of a compilation database."""
    path.write_text("".join(f'#include "{entry["file"]}"\n' for entry in members), encoding="utf-8")
    first = members[0]
    return {"directory": first["directory"], "file": str(path),
            "arguments": [*switches(first["arguments"], first["file"]), "-c", str(path)]}
