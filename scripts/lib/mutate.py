"""Mutation run of the product's sources: mutate.py [--files PATH... | --changed [COMMIT]]
                                               [--count N] [--seed S] [--limit S] [--timeout S]
                                               [--jobs N] [--log FILE [--again]]
       mutate.py --table FILE

Called by scripts/mutate.sh, whose help explains the options. A mutant is one changed line. It is
noticed if a test fails that passes without it.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ctest/lint"))
from includes import changed_files, git, including  # noqa: E402
from mutants import (EQUIVALENTS, Log, candidates, draw,  # noqa: E402
                     judged_equivalents, meaning, mutable, needs_gpu, report)
from noticing import Test, batches, in_order, links, strong_symbols  # noqa: E402

RESULT = re.compile(r"Test +#\d+: (\S+) \.*\s*(\*{0,3}[A-Z].*?)\s+([\d.]+) sec")


@dataclasses.dataclass(frozen=True)
class Stage:
    """Targets to build, and the arguments of ctest that choose tests which need them."""
    targets: tuple[str, ...]
    choice: tuple[str, ...]
    time_s: float = math.inf  # what the tests are known to take


def failed_tests(text):
    """Names of the tests that failed by what ctest printed."""
    return [name for name, state, _ in RESULT.findall(text)
            if not state.startswith(("Passed", "***Skipped"))]


def passed_tests(text):
    """{test that passed: seconds} by what ctest printed."""
    return {name: float(seconds) for name, state, seconds in RESULT.findall(text)
            if state.startswith("Passed")}


def importers(stem, modules):
    """Those of {module: its text} that are `stem` or import it, straight or through others."""
    found, waiting = set(), [stem]
    while waiting:
        module = waiting.pop()
        found.add(module)
        waiting += [name for name, text in modules.items()
                    if name not in found and imports_one({module}, text)]
    return found


def imports_one(modules, text):
    names = "|".join(modules)
    return re.search(rf"^\s*(import|from) ([\w.]+\.)?({names})\b"
                     rf"|^\s*from [\w.]+ import (\w+, )*({names})\b", text,
                     re.MULTILINE) is not None


def names_module(modules, text):
    names = "|".join(modules)
    return (imports_one(modules, text)
            or re.search(rf'\b({names})\.py\b|\btool\("({names})"', text) is not None)


def refresh_copy(root, copy):
    """A work tree of its own with what `root` has now; unchanged files keep their time stamps."""
    head = git(root, "rev-parse", "HEAD")[0].strip()
    if (copy / ".git").exists():
        git(copy, "clean", "--quiet", "-fd")
        git(copy, "reset", "--quiet", "--hard", head)
    else:
        git(root, "worktree", "prune")
        git(root, "worktree", "add", "--quiet", "--detach", str(copy), head)
    for name in changed_files(root):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, copy / name)
        else:
            (copy / name).unlink(missing_ok=True)


class Bench:
    """The copy with its build tree: puts a mutant in, builds, runs tests."""

    def __init__(self, copy, jobs, timeout_s, limit_s):
        self.copy, self.tree, self.jobs = copy, copy / "build/host", jobs
        self.timeout_s, self.limit_s = timeout_s, limit_s
        self.log = (copy.parent / "mutate.log").open("w", encoding="utf-8", buffering=1)
        configure = ["source scripts/lib/common.sh", "source scripts/lib/build.sh",
                     "configure host ON ON"]
        if self.command(["bash", "-euc", "; ".join(configure)])[0] != 0:
            raise RuntimeError(f"the copy could not be configured: {self.log.name}")
        self.graph = including(copy)
        listed = subprocess.run(["ninja", "-C", self.tree, "-t", "targets", "all"],
                                capture_output=True, text=True, check=True).stdout
        self.targets = set(re.findall(r"^(\S+):", listed, re.MULTILINE))
        shown = subprocess.run(["ctest", "--test-dir", self.tree, "--show-only=json-v1"],
                               capture_output=True, text=True, check=True).stdout
        listed = json.loads(shown)["tests"]
        self.tests = {test["name"]: test.get("command", [""]) for test in listed}
        self.labels = {test["name"]: [label for row in test["properties"] if row["name"] == "LABELS"
                                      for label in row["value"]] for test in listed}
        self.objects, self.passes = {}, {}  # a test, or a stage's time: passes without a mutant
        self.sources = collections.defaultdict(list)  # of programs
        for entry in json.loads((self.tree / "compile_commands.json").read_text(encoding="utf-8")):
            words = shlex.split(entry["command"])
            self.objects[entry["file"]] = words[words.index("-o") + 1]
            owner = re.search(r"CMakeFiles/(\w+)\.dir/", self.objects[entry["file"]])
            if owner:
                self.sources[owner[1].removesuffix("_program")].append(
                    os.path.relpath(entry["file"], copy))
        orders = re.findall(r"^build (?:ctest/)?bin/(\w+): .*? \|\| (.*)$",
                            (self.tree / "build.ninja").read_text(encoding="utf-8"), re.MULTILINE)
        self.started = {name: [os.path.basename(word) for word in after.split()
                               if re.match(r"(ctest/)?bin/\w+(?<!_headers)$", word)]
                        for name, after in orders}  # {program: those that must be there before it}
        self.times_file = copy.parent / "mutate_times.json"
        self.times = json.loads(self.times_file.read_text(encoding="utf-8")) \
            if self.times_file.is_file() else {}

    def command(self, words, limit_s=None):
        """(exit code, what it printed); the code is None if it ran past the limit."""
        environment = {**os.environ, "GTEST_FAIL_FAST": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(words, cwd=self.copy, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True) as running:
            try:
                said, code = running.communicate(timeout=limit_s)[0], running.returncode
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGTERM)  # mpirun ends its ranks
                time.sleep(2)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                said, code = running.communicate()[0], None
            except BaseException:
                os.killpg(running.pid, signal.SIGTERM)
                raise
        self.log.write(f"\n$ {shlex.join(map(str, words))}\n{said}")
        return code, said

    def build(self, targets):
        wanted = [target for target in targets if target in self.targets]
        build = ["ninja", "-C", self.tree, f"-j{self.jobs}", *wanted]
        return not wanted or self.command(build)[0] == 0

    def object_bytes(self, path):
        """The object file of a source; None if the source does not compile."""
        target = self.objects[str(self.copy / path)]
        return (self.tree / target).read_bytes() if self.build([target]) else None

    def stages(self, path):
        """Tests that can notice a change of the file, the cheapest first."""
        programs = tuple(sorted(name for name in self.targets if name.startswith("bin/stowage_")
                                and not name.endswith("_headers")))
        stem, suffix = pathlib.PurePath(path).stem, pathlib.PurePath(path).suffix
        if suffix == ".sh":
            return [Stage((), ("-R", r"^(lint\.shell|scripts\.commands)$")),
                    *(Stage(programs, ("-R", rf"^scripts\.{unit}\."))
                      for unit in self.script_tests(path))]
        if suffix == ".py":
            modules = {tool.stem: tool.read_text(encoding="utf-8")
                       for tool in (self.copy / "results/tools").rglob("*.py")}
            own = self.naming({stem})
            tests = [name for name in self.naming(importers(stem, modules))
                     if name in own or "process" not in self.labels[name]]
            times = {name: 300 if {"process", "slow"} & set(self.labels[name]) else 60
                     for name in tests} | self.times
            return [Stage(programs if "process" in self.labels[name] else
                          (f"test_{name.replace('.', '_')}",), ("-R", f"^{re.escape(name)}$"))
                    for name in sorted(tests, key=lambda name: (times[name], name))]
        symbols = strong_symbols(self.tree / self.objects[str(self.copy / path)])
        tests = in_order(path, self.runnable(), self.sources, self.graph, self.times,
                         lambda program: links(self.tree / self.paths[program], symbols))
        return [Stage(tuple(sorted({self.paths[program] for test in group
                                    for program in test.programs})),
                      ("-R", f"^({'|'.join(re.escape(test.name) for test in group)})$"),
                      sum(test.time_s() for test in group))
                for group in batches(tests, self.limit_s)]

    def runnable(self):
        """The tests of ctest with the programs that their commands name, or that those start."""
        self.paths = {pathlib.PurePath(target).name: target for target in self.targets
                      if re.match(r"(ctest/)?bin/\w+$", target)}
        whole = tuple(sorted(name for name, target in self.paths.items()
                             if target.startswith("bin/") and not name.endswith("_headers")))
        for name, command in self.tests.items():
            own = f"test_{re.sub(r'[.]np[0-9]+$', '', name).replace('.', '_')}"
            words = [word for base in [own, *map(os.path.basename, command)]
                     for word in [base, *self.started.get(base, ())]]
            named = tuple(dict.fromkeys(word for word in words if word in self.paths))
            if str(self.tree / "bin") in command:
                named = whole
            yield Test(name, frozenset(self.labels[name]), named)

    def script_tests(self, path):
        """Units of ctest/scripts that start whole processes and name the script or its folder."""
        named = {path, f"{pathlib.PurePath(path).parent.as_posix()}\""}
        return [test.stem.removesuffix("_test") for test in
                sorted((self.copy / "ctest/scripts").glob("*_test.py"))
                if "process_cases" in (text := test.read_text(encoding="utf-8"))
                and any(name in text for name in named)]

    def naming(self, tools):
        """Names of tests whose command or source names one of these tools."""
        found = []
        for name, command in self.tests.items():
            folder, unit = name.split(".")[:2]
            sources = [self.copy / "ctest" / folder / f"{unit}_test{suffix}"
                       for suffix in (".py", ".cpp")]
            text = " ".join(command) + "".join(source.read_text(encoding="utf-8")
                                               for source in sources if source.is_file())
            found += [name] if names_module(tools, text) else []
        return found

    def first_failed(self, choice, without=(), time_s=math.inf):
        """The first test that fails, "time" if they ran past the limit, "" if all pass.

        The limit is far above the time that they are known to take: other work shares the cores.
        """
        words = ["ctest", "--preset", "host", "--parallel", str(self.jobs), "--stop-on-failure",
                 "--no-tests=ignore", *choice]
        if named := [name for name in without if isinstance(name, str)]:
            words += ["-E", f"^({'|'.join(map(re.escape, named))})$"]
        code, said = self.command(words, min(self.timeout_s, 30 + 20 * time_s))
        for name, seconds in passed_tests(said).items():
            self.times[name] = min(seconds, self.times.get(name, seconds))
            self.passes[name] = True
        self.times_file.write_text(json.dumps(self.times), encoding="utf-8")
        if code is None:
            return "time"
        failed = next(iter(failed_tests(said)), "")
        if code != 0 and not failed:
            raise RuntimeError(f"ctest ended with {code} and names no failed test: {said[-500:]}")
        return failed

    def outcome(self, mutant):
        """(outcome, which test noticed): noticed, survived, not compiled, equal, not built."""
        file = self.copy / mutant.path
        original = file.read_text(encoding="utf-8")
        try:
            return self.outcome_of(mutant, file, original)
        finally:
            file.write_text(original, encoding="utf-8")

    def code(self, file, path, text):
        """What a machine makes of the file with this text, to compare; None if it is no program."""
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".cpp":
            return self.object_bytes(path)
        if file.suffix == ".sh":
            return text if self.command(["bash", "-n", file])[0] == 0 else None
        return meaning(path, text)

    def outcome_of(self, mutant, file, original):
        if (file.suffix == ".cpp" and str(file) not in self.objects
                or needs_gpu(mutant.path, original)):
            return "not built", ""
        changed = mutant.applied(original)
        before, after = (self.code(file, mutant.path, text) for text in (original, changed))
        if before is None:
            raise RuntimeError(f"{mutant.path} does not compile without a mutant: {self.log.name}")
        if after is None or after == before:
            return "not compiled" if after is None else "equal", ""
        for stage in self.stages(mutant.path):
            if not self.build(stage.targets):
                file.write_text(original, encoding="utf-8")
                if not self.build(stage.targets):
                    raise RuntimeError(f"no build of {' '.join(stage.targets)}: {self.log.name}")
                return "not compiled", ""
            if noticed := self.noticed_by(stage, file, original, changed):
                return "noticed", noticed
        return "survived", ""

    def noticed_by(self, stage, file, original, changed):
        """The test that fails with the mutant alone, "time" if only that takes too long, or ""."""
        while failed := self.first_failed(
                stage.choice, [name for name, passes in self.passes.items() if not passes],
                stage.time_s):
            about = (failed, stage) if failed == "time" else failed
            if about not in self.passes:
                file.write_text(original, encoding="utf-8")
                self.build(stage.targets)
                choice = stage.choice if failed == "time" else ("-R", f"^{re.escape(failed)}$")
                self.passes[about] = not self.first_failed(choice, time_s=stage.time_s)
                file.write_text(changed, encoding="utf-8")
                self.build(stage.targets if not self.passes[about] else ())
            if self.passes[about] or failed == "time":
                return failed if self.passes[about] else ""
        return ""


def chosen_files(arguments):
    for name in arguments.files or []:
        if not os.path.exists(name):
            raise ValueError(f"--files {name}: there is no such file or folder")
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--",
                 *(os.path.abspath(name) for name in arguments.files or [str(ROOT)]))
    chosen = changed_files(ROOT, arguments.changed) if arguments.changed else listed
    return sorted({name for name in chosen if mutable(name) and (ROOT / name).is_file()})


def print_outcome(mutant, outcome, test, elapsed_s):
    print(f"{elapsed_s:6.0f} s  {mutant.path}:{mutant.line} {outcome}"
          f"{' by ' + test if test else ''}", flush=True)


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def try_all(drawn, bench, log, judged, arguments):
    """([(mutant, outcome)], judged ones that were drawn), until so many count or ^C."""
    tried, left_out, start = [], [], time.monotonic()
    commit = git(ROOT, "rev-parse", "--short", "HEAD")[0].strip()
    with contextlib.suppress(KeyboardInterrupt):
        for mutant in drawn:
            if sum(outcome in ("noticed", "survived") for _, outcome in tried) >= arguments.count:
                break
            if mutant.key() in judged:
                left_out.append(mutant)
                continue
            known = None if arguments.again else log.outcome(mutant)
            if known is None:
                began, used = time.monotonic(), cpu_s()
                known, test = bench.outcome(mutant)
                log.add(mutant, known, test, seconds=round(time.monotonic() - began, 1),
                        cpu_seconds=round(cpu_s() - used, 1), seed=arguments.seed, commit=commit)
                print_outcome(mutant, known, test, time.monotonic() - start)
            tried.append((mutant, known))
    return tried, left_out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", nargs="+")
    parser.add_argument("--changed", nargs="?", const="HEAD")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--table", type=pathlib.Path, metavar="LOG")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    judged = judged_equivalents((ROOT / EQUIVALENTS).read_text(encoding="utf-8"))
    if arguments.table:
        print(Log(arguments.table).table(judged))
        return 0
    log = Log(arguments.log)
    try:
        files = chosen_files(arguments)
    except ValueError as error:
        parser.error(str(error))
    if arguments.again:
        drawn = [mutant for mutant in log.survivors(ROOT, judged) if mutant.path in set(files)]
    else:
        drawn = draw([mutant for path in files for mutant in candidates(ROOT, path)],
                     arguments.seed)
    print(f"{len(drawn)} lines of {len(files)} files have mutants; {arguments.count} are to count, "
          f"seed {arguments.seed}", flush=True)
    if not drawn:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends with the report, as ^C does
    start = time.monotonic()
    refresh_copy(ROOT, ROOT / "build/mutate")
    bench = Bench(ROOT / "build/mutate", arguments.jobs, arguments.timeout, arguments.limit)
    tried, left_out = try_all(drawn, bench, log, judged, arguments)
    return 1 if report(tried, left_out, time.monotonic() - start) else 0


if __name__ == "__main__":
    sys.exit(main())
