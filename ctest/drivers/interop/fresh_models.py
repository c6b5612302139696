#!/usr/bin/python3
"""New random models of a family against transformers itself.

Usage: fresh_models.py FAMILY --bin FOLDER --environment FOLDER [--models N]. Installs
requirements.txt into the environment if it is not there yet; exits 77 where that cannot be done.
Then makes models with seeds of their own, in fp32 and in fp64, and compares as convert_test.py
does with its fixtures. What was imported is given back: transformers must load it and find the
same weights.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import agreement
import published

HERE = pathlib.Path(__file__).parent
LOADS = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
print(sum(p.double().abs().sum().item() for p in model.parameters()))
"""


def install(environment):
    """The environment's Python, or None where it cannot be made."""
    python = environment / "bin" / "python"
    done = environment / "installed.txt"
    wanted = (HERE / "requirements.txt").read_text()
    if done.exists() and done.read_text() == wanted:
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "-r", HERE / "requirements.txt"], check=True, timeout=1500)
    except (subprocess.SubprocessError, OSError) as problem:
        print(f"skipped: {problem}")
        return None
    done.write_text(wanted)
    return python


def run(python, *arguments):
    return subprocess.run([python, *arguments], check=True, capture_output=True, text=True,
                          env=dict(os.environ, HF_HUB_OFFLINE="1")).stdout


def check_export(programs, python, model):
    """What we give back is what transformers loads, weight by weight."""
    programs.run("convert", "export", "weights", "--out", "given_back", "--shard-size", "8KiB")
    one, other = published.read_folder(model), published.read_folder("given_back")
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert run(python, "-c", LOADS, "given_back") == run(python, "-c", LOADS, model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=published.FAMILIES)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--environment", required=True, type=pathlib.Path)
    parser.add_argument("--models", type=int, default=2)
    arguments = parser.parse_args()
    python = install(arguments.environment.absolute())
    if python is None:
        sys.exit(77)
    programs = agreement.Programs(arguments.bin.absolute())
    for double in [False] * arguments.models + [True] * arguments.models:
        seed = random.SystemRandom().randrange(2 ** 31)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            made = run(python, HERE / "make_reference.py", arguments.family, "it", "--seed",
                       str(seed), *["--double"] * double)
            print(f"seed {seed}, {'fp64' if double else 'fp32'}: {made.strip()}")
            model = pathlib.Path("it/model").absolute()
            agreement.compare(arguments.family, programs, pathlib.Path("it").absolute())
            check_export(programs, python, model)
            os.chdir("/")


if __name__ == "__main__":
    main()
