#!/usr/bin/env python3
"""Commands of the guide run as printed: commands_test.py PAGE --bin FOLDER --source FOLDER.

A block of commands begins with ```sh and is run by bash in a folder that looks like a checkout
after scripts/quickstart.sh. Programs there are wrappers, which make the quick start's deck small.
A block that this machine may not be able to run says why: ```sh gpu, ```sh slurm, ```sh install.
A block that quotes a file of the tree names it: ```cpp kernels/operator.hpp.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ELSEWHERE = {"build": "builds", "gpu": "needs GPUs", "install": "changes the machine",
             "slurm": "needs a batch system", "yours": "names files of yours"}
BLOCK = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.M)
COMMAND = re.compile(r"^\s*(mpirun|sbatch|cmake|ctest|pip|apt-get|python3|stowage_\w+|[\w./]+\.sh"
                     r"|build/host/bin/\w+|[\w./]+\.py)( |$)")
# Of the quick start's deck and its copy, unless the command says otherwise.
SMALL = {"model.pattern": "ME*-", "model.hidden_size": "64", "model.ffn_hidden_size": "128",
         "train.seq_length": "64", "train.micro_batch_size": "1",
         "train.global_batch_size": "4", "eval.interval": "2", "eval.steps": "1",
         "optim.warmup_steps": "1", "validate.val_loss_below": "100",
         "validate.val_loss_falling": "false", "run.log_interval": "1"}
WRAPPER = r"""#!/usr/bin/env bash
arguments=("$@")
if [[ " $*" =~ [\ /](quickstart|first)\.toml ]]; then
  for pair in {small}; do
    [[ " $* " == *" ${{pair%%=*}}="* ]] || arguments+=("$pair")
  done
  [[ $0 != *_train ]] || arguments+=(run.steps=4 train.seq_length=64)
fi
if [[ $0 == *_train && "$*" == *.toml* ]]; then  # which takes a second of set-up
  arguments+=(validate.finite_differences=off)
fi
if [[ " $* " == *" --longest "* || " $* " == *" --ranks "* ]]; then  # searches: of four layers
  arguments+=("model.pattern=M*-E")
elif [[ " $* " == *" --largest "* ]]; then  # of which few fit
  arguments+=("model.pattern=M*-" model.ffn_hidden_size=393216)
elif [[ $* == *30b-one-gpu* ]]; then  # plans of large models take up to half a minute
  arguments+=("model.pattern=MEM*E")
elif [[ $* == *nano-9b-v2* ]]; then
  arguments+=("model.pattern=M-M*-")
fi
exec {program} "${{arguments[@]}}"
"""
MPIRUN = """#!/usr/bin/env bash
exec {mpirun} --oversubscribe --bind-to none "$@"
"""


def blocks(page):
    """(first line, words behind the fence, text) of each fenced block."""
    for found in BLOCK.finditer(page):
        yield page.count("\n", 0, found.start()) + 1, found[2].split(), found[3]


def defects(page, source):
    """Commands that stand in no block of commands, reasons that nobody knows, and quotations that
    are not in their file (```cpp kernels/operator.hpp)."""
    for line, words, text in blocks(page):
        if words[:1] == ["sh"]:
            for reason in words[1:]:
                if reason not in ELSEWHERE:
                    yield f"line {line}: no reason '{reason}': {', '.join(ELSEWHERE)}"
        elif len(words) == 2 and text not in (source / words[1]).read_text(encoding="utf-8"):
            yield f"line {line}: is not in {words[1]}"
        elif not words and COMMAND.match(text):
            yield f"line {line}: a command in a block that does not begin with ```sh"
    for line in BLOCK.sub("", page).splitlines():
        if line.startswith("    ") and COMMAND.match(line):
            yield f"{line.strip()}: a command in no block that begins with ```sh"


def script(page):
    """All commands of a page that can be run here, each announced with its line."""
    parts = ["set -euo pipefail\n"]
    for line, words, text in blocks(page):
        if words == ["sh"]:
            parts.append(f"echo '# line {line}'\n{text}")
    return "".join(parts)


def executable(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def checkout(folder, source, bin_folder):
    """A folder like a checkout after the quick start; the environment for commands in it."""
    for name in ("ctest", "docs", "drivers", "inputs", "results", "scripts"):
        (folder / name).symlink_to(source / name)
    programs = folder / "build" / "host" / "bin"
    for name in ("data", "runs", "path", "build/host/bin"):
        (folder / name).mkdir(parents=True)
    verses = [f"{chapter}:{verse} And the evening and the morning were the day {verse}.\n"
              for chapter in range(1, 31) for verse in range(1, 31)]
    (folder / "data/kjv.txt").write_text("".join(
        f"Genesis {chapter + 1}\n\n{''.join(verses[30 * chapter:30 * chapter + 30])}\n"
        for chapter in range(30)), encoding="utf-8")
    small = " ".join(f"{key}={value}" for key, value in SMALL.items())
    for program in bin_folder.glob("stowage_*"):
        wrapper = WRAPPER.format(small=small, program=program)
        if program.name in ("stowage_convert", "stowage_data", "stowage_deck_reference"):
            wrapper = f'#!/usr/bin/env bash\nexec {program} "$@"\n'
        executable(programs / program.name, wrapper)
    mpirun = subprocess.run(["which", "mpirun"], capture_output=True, text=True, check=True)
    executable(folder / "path/mpirun", MPIRUN.format(mpirun=mpirun.stdout.strip()))
    executable(folder / "path/python3", f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    return dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_pml="ob1", PYTHONDONTWRITEBYTECODE="1",
                PATH=f"{folder}/path:{programs}:{os.environ['PATH']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page")
    for name in ("bin", "source"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    given = parser.parse_args()
    if missing := [one for one in ("h5py", "matplotlib") if not importlib.util.find_spec(one)]:
        print(f"skipped: no {' and no '.join(missing)} for {sys.executable}")
        return 77
    page = (given.source / given.page).read_text(encoding="utf-8")
    if found := list(defects(page, given.source)):
        print(f"{given.page}: " + f"\n{given.page}: ".join(found))
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = checkout(folder, given.source.resolve(), given.bin.resolve())
        return subprocess.run(["bash", "-c", script(page)], cwd=folder, env=environment,
                              stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
