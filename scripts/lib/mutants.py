"""Mutants of sources: which there are, which are drawn, how they are counted. Builds nothing."""

import ast
import collections
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENTS = "scripts/mutate_equivalent.txt"
SHELL_RULES = str(ROOT / "scripts/lib/mutate_shell.rules")
RULES = {".cpp": ["universal.rules", "c_like.rules", "cpp.rules"],
         ".py": ["universal.rules", "python.rules"], ".sh": [SHELL_RULES]}
# Lines that say nothing of what a program computes.
IGNORED = {".cpp": [r"^\s*(using|namespace|static_assert|template)\b", r"^\s*[{}]+;?\s*(//.*)?$",
                   r"^\s*//"],
           ".py": [], ".sh": []}


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    line: int  # from 1
    old: str
    new: str

    def key(self):
        return self.path, self.old.strip(), self.new.strip()

    def applied(self, text):
        lines = text.splitlines(keepends=True)
        lines[self.line - 1] = self.new
        return "".join(lines)


def mutable(path):
    """Whether a path is of a source that the run changes: host code, the tools, the scripts."""
    parts, suffix = pathlib.PurePath(path).parts, pathlib.PurePath(path).suffix
    return (suffix == ".cpp" and parts[0] != "ctest" or suffix == ".sh" and parts[0] == "scripts"
            or suffix == ".py" and parts[:2] == ("results", "tools"))


def needs_gpu(path, text):
    """Whether it is a tool that runs PyTorch on a GPU; like device code, no test can try it."""
    return path.endswith(".py") and re.search(r"^\s*(import|from) torch\b", text, re.M) is not None


def open_brackets(line):
    """What a line of C++ opens and does not close, less what it closes of lines before."""
    text = r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])+\''
    code = re.sub(r"/\*.*?\*/|//.*", "", re.sub(text, '""', line))
    return [code.count(a) - code.count(b) for a, b in ("()", "[]", "{}")]


PARAMETER = re.compile(r"[(,] ?(const )?[\w:<>]+[&*]* \w+[,)]")
DECLARATION = re.compile(r"\s*(?!return|throw|delete|else|using|goto)(const |constexpr |static )*"
                         r"[A-Za-z_][\w:<>,*& ]*[ &*>]\w+( = .*|\{.*\}|\(.*\))?;|"
                         r"\s*(case .*|default|public|private|protected):")
NO_CONDITION = re.compile(r"(?<!\bif)(?<!\bwhile)(?<!\breturn)(?<![-&|=<>+*/%,(:?!]) \([01]==1\)")


def plausible(old, new):
    """Whether a changed line of C++ may compile: by its brackets, and the spaces of clang-format.

    A bracket of a template, a reference or a name that ends in a digit is no operator, no number;
    parameters have an order, what is declared is used.
    """
    if open_brackets(old) != open_brackets(new) or NO_CONDITION.search(new):
        return False
    if PARAMETER.search(old) and sorted(re.findall(r"\w+", old)) == sorted(re.findall(r"\w+", new)):
        return False
    if new.strip().startswith("/*") and DECLARATION.match(old):
        return False
    start = len(os.path.commonprefix([old, new]))
    end = len(os.path.commonprefix([old[start:][::-1], new[start:][::-1]]))
    gone, made = old[start:len(old) - end], new[start:len(new) - end]
    before, after = old[:start], old[len(old) - end:]
    if gone == "" and re.search(r"\w[<>&*]$", before) and re.match(r"[=<>&*|]", made):
        return False
    if gone in ("<", ">", "&", "*") and not (before.endswith((" ", gone))
                                             and after.startswith((" ", gone))):
        return False
    if gone in ("+", "-") and made in ("*", "/", "%") and before.endswith(("+", "-")):
        return False
    return not (gone.isdigit() and re.search(r"[A-Za-z_]\d*$", before))


def candidates(root, path):
    """All mutants of a file by the rules of universalmutator."""
    from universalmutator import mutator  # in the environment that mutate.sh makes
    source = (root / path).read_text(encoding="utf-8").splitlines(keepends=True)
    suffix = pathlib.PurePath(path).suffix
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(source, RULES[suffix], ignorePatterns=IGNORED[suffix],
                                      ignoreStringOnly=suffix != ".sh")
    return [Mutant(path, line, source[line - 1], new) for line, new, *_ in made
            if new.count("\n") == 1  # some rules add a line: `break;`
            and (suffix != ".cpp" or plausible(source[line - 1], new))]


def draw(mutants, seed):
    """The mutants in the order of trying them: folders take turns, a file has a line once.

    Other lines, files or folders change nothing in the order of two mutants.
    """
    def place(*words):
        return hashlib.sha256("\n".join(map(str, (seed, *words))).encode()).digest()

    lines = collections.defaultdict(list)
    for mutant in sorted(mutants, key=lambda mutant: (mutant.path, mutant.line)):
        lines[mutant.path, mutant.old.strip()].append(mutant)
    folders = collections.defaultdict(list)
    for (path, _), equal in lines.items():
        folders[folder_of(path)].append(min(
            (mutant for mutant in equal if mutant.line == equal[0].line),
            key=lambda mutant: place(*mutant.key())))
    for drawn in folders.values():
        drawn.sort(key=lambda mutant: place(mutant.path, mutant.old.strip()))
    turns = max(map(len, folders.values()), default=0)
    return [drawn[turn] for turn in range(turns) for drawn in folders.values() if turn < len(drawn)]


def folder_of(path):
    """The first folder; the tools in Python are apart from the C++ beside them."""
    return "results/tools" if path.startswith("results/tools/") else pathlib.PurePath(path).parts[0]


class Log:
    """Outcomes in a file of JSON lines, which a later run goes on from; no path: none are kept."""

    def __init__(self, path):
        self.path, self.rows = path, []
        for line in path.read_text(encoding="utf-8").splitlines() if path and path.exists() else ():
            self.rows.append(json.loads(line))

    def outcomes(self):
        """{(path, line, mutated line): outcomes, the latest last}."""
        found = collections.defaultdict(list)
        for row in self.rows:
            found[row["file"], row["old"], row["mutant"]].append(row["verdict"])
        return found

    def outcome(self, mutant):
        return self.outcomes().get(mutant.key(), [None])[-1]

    def add(self, mutant, outcome, test, **more):
        row = {"file": mutant.path, "line": mutant.line, "old": mutant.old.strip(),
               "mutant": mutant.new.strip(), "verdict": outcome, "killed_by": test, **more}
        self.rows.append(row)
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def survivors(self, root, judged):
        """Mutants whose latest outcome is `survived`, where their lines stand now."""
        found = []
        for (path, old, new), outcomes in self.outcomes().items():
            if outcomes[-1] != "survived" or (path, old, new) in judged:
                continue
            lines = (root / path).read_text(encoding="utf-8").splitlines(keepends=True) \
                if (root / path).is_file() else []
            at = next((at for at, line in enumerate(lines) if line.strip() == old), None)
            if at is not None:
                found.append(Mutant(path, at + 1, lines[at],
                                    lines[at].replace(old, new) if new else "\n"))
        return found

    def table(self, judged):
        """Rows of a page, by folder: how many were tried and what became of them."""
        counts = collections.defaultdict(collections.Counter)
        for mutant, outcomes in self.outcomes().items():
            for folder in (folder_of(mutant[0]), "all"):
                row = counts[folder]
                if mutant in judged or outcomes[-1] == "equal":
                    row["equal"] += 1
                elif outcomes[-1] in ("noticed", "survived"):
                    row["tried"] += 1
                    row["first"] += outcomes[0] == "noticed"
                    row["now"] += outcomes[-1] == "noticed"
        lines = ["| sources | tried | equal | noticed at first | noticed now |",
                 "| --- | --- | --- | --- | --- |"]
        for folder in [*sorted(set(counts) - {"all"}), *(["all"] if counts else [])]:
            row = counts[folder]
            lines.append(f"| {f'`{folder}`' if folder != 'all' else 'all'} | {row['tried']} | "
                         f"{row['equal']} | {row['first']} | {row['now']} |")
        return "\n".join(lines)


def judged_equivalents(text):
    """{(path, line, mutated line): reason} of mutate_equivalent.txt, whose head tells its form."""
    entries = {}
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or not lines[1].startswith("- ") or not lines[2].startswith("+"):
            raise ValueError(f"{EQUIVALENTS}: '{lines[0]}' needs a path, a line that begins with "
                             "'- ', one that begins with '+', and a reason")
        entries[lines[0], lines[1][2:].strip(), lines[2][1:].strip()] = " ".join(lines[3:]).strip()
    return entries


class Plain(ast.NodeTransformer):
    """Without docstrings, and without `return None` where a function ends anyway."""

    def visit_Expr(self, node):
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node):
        end_plainly(node.body)
        return self.generic_visit(node)


def end_plainly(body):
    last = body[-1] if body else None
    if isinstance(last, ast.Return) and (last.value is None or isinstance(last.value, ast.Constant)
                                         and last.value.value is None):
        body[-1] = ast.Pass()
    if isinstance(last, ast.If):
        end_plainly(last.body)
        end_plainly(last.orelse)
    if isinstance(last, ast.Try):
        for block in [handler.body for handler in last.handlers] + [last.orelse]:
            end_plainly(block)


def meaning(path, text):
    """What a Python source means, in a plain form; None if it is no program."""
    try:
        compile(text, path, "exec")
    except (SyntaxError, ValueError):
        return None
    return ast.dump(Plain().visit(ast.parse(text, path)))


def report(tried, judged, elapsed_s):
    """Prints score, table and survivors of [(mutant, outcome, ...)]; returns the survivors."""
    columns = ["noticed", "survived", "not compiled", "equal", "judged", "not built"]
    rows = collections.defaultdict(collections.Counter)
    for mutant, outcome in [*tried, *((mutant, "judged") for mutant in judged)]:
        rows[folder_of(mutant.path)][outcome] += 1
        rows["all"][outcome] += 1
    print(f"\n{'folder':12}" + "".join(f"{name:>14}" for name in columns) + f"{'score':>8}")
    for folder in [*sorted(set(rows) - {"all"}), "all"]:
        counts = rows[folder]
        counted = counts["noticed"] + counts["survived"]
        score = f"{100 * counts['noticed'] / counted:.0f} %" if counted else "-"
        print(f"{folder:12}" + "".join(f"{counts[name]:14}" for name in columns) + f"{score:>8}")
    survivors = [mutant for mutant, outcome in tried if outcome == "survived"]
    for mutant in survivors:
        print(f"\n{mutant.path}:{mutant.line}\n- {mutant.old.strip()}\n+ {mutant.new.strip()}")
    print(f"\n{elapsed_s:.0f} s")
    return survivors
