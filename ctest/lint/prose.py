"""The rule `prose` of lint.py: how pages read. `lint.py prose PAGE...` lists a page's defects."""

import re

MAX_COLUMNS = 100
MAX_WORDS = 80  # of a paragraph or a list item
MAX_NUMBERS = 2  # of a sentence; more of them make a table

# Programs write these pages whole; parts of others lie between the markers of table.py.
WRITTEN_BY_PROGRAMS = re.compile(r"docs/reference/(deck|metrics|programs)\.md|results/predicted/.*")
GENERATED = (re.compile(r"<!-- made by "), re.compile(r"<!-- end of what "))

FENCE = re.compile(r"\s*(```|~~~)")
NO_PROSE = re.compile(r"\s*\||#{1,6}\s*\S|\s*\[[^\]]+\]:\s|<!--")  # table, heading, link, comment
ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[^a-z])")

CODE = re.compile(r"(`+).+?\1")
LINK = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
# A number that is a name counts no more than one within a word does (Mamba-2, sm_90a, 64-bit).
NAMED = re.compile(
    r"\b(arXiv|C\+\+|clang(-format)?|CMake|CUDA|cuDNN|Debian|equation|figure|gcc|HDF5|issue|"
    r"level|Llama|MPI|NCCL|Nemotron|part|PyTorch|Python|ranks?|rule|schema|section|Slurm|stage|"
    r"step|table|Ubuntu|version)[ :]"
    r"v?\d[\d.]*|\d+-(bit|byte)\b|\bexit (code |status )?\d+", re.IGNORECASE)
SHAPE = re.compile(r"\d+(?: (?:x|by) \d+)+")  # is one figure
NUMBER = re.compile(r"(?<![\w.,/#^-])-?\d+(?:[.,]\d+)*(?:e-?\d+)?(?=[x%]?(?![\w-]|\.\w|/\w))")


def is_gated(name):
    return not WRITTEN_BY_PROGRAMS.fullmatch(name)


def prose_lines(text):
    """(number, line) of prose: no code, table, heading or link definition, nothing generated. Lines
    between two paragraphs come as ""."""
    fenced = generated = False
    blank = True
    indent = 0  # of the text of the list item at hand
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
            line = ""
        elif GENERATED[0].match(line):
            generated = True
        elif GENERATED[1].match(line):
            generated = False
            line = ""
        if fenced or generated or NO_PROSE.match(line):
            line = ""
        if blank and line and not line.startswith(" "):
            indent = 0
        if blank and line.startswith(" " * (indent + 4)):  # a block of code
            line = ""
        elif item := ITEM.match(line):
            indent = item.end()
        blank = not line.strip()
        yield number, line


def paragraphs(text):
    """(number of the first line, text) of each paragraph and each item of a list."""
    first, words = 0, []
    for number, line in [*prose_lines(text), (0, "")]:
        item = ITEM.match(line)
        if words and (not line.strip() or item):
            yield first, " ".join(words)
            words = []
        if line.strip():
            if not words:
                first = number
            words.append(line[item.end() if item else 0:].strip())


def plain(paragraph):
    """The paragraph with code as one word and links as their text."""
    return LINK.sub(r"\1", CODE.sub("code", paragraph))


def numbers_of(sentence):
    return NUMBER.findall(SHAPE.sub("1", NAMED.sub("name", sentence)))


def defects_of(text):
    """(line, what) of each defect of a page."""
    for number, line in prose_lines(text):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns of prose, {MAX_COLUMNS} at most"
    for first, paragraph in paragraphs(text):
        paragraph = plain(paragraph)
        if (count := len(paragraph.split())) > MAX_WORDS:
            yield first, f"paragraph of {count} words, {MAX_WORDS} at most"
        for sentence in SENTENCE_END.split(paragraph):
            if len(numbers := numbers_of(sentence)) > MAX_NUMBERS:
                yield (first, f"{len(numbers)} numbers in a sentence, {MAX_NUMBERS} at most, more "
                       f"are a table: {', '.join(numbers)}")
