#!/usr/bin/env python3
"""Every folder of published results lists the command of each of its sets: commands_test.py TOOLS
PUBLISHED."""

import fnmatch
import importlib.util
import pathlib
import sys
import tempfile
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

TOOLS, PUBLISHED = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(TOOLS))

import h5py  # noqa: E402

from stowage_results.result_files import text  # noqa: E402

# Keys and options by which a list has been mended since sets of its folder were made, or by which
# sets were renamed.
MENDED = (("h200x2/*", ("machine.name",)), ("h200_fp8/dense_*", ("run.output",)),
          ("h200_fp8/moe_*", ("run.output",)), ("h200_fp8/quantise", ("--out",)))


def mended(path):
    place = f"{path.parent.name}/{path.stem}"
    return {key for pattern, keys in MENDED if fnmatch.fnmatch(place, pattern) for key in keys}


def listed(path):
    """{name of a set: (GPUs, words)} of a commands.txt."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            gpus, name, *words = line.split()
            if name in found:
                raise ValueError(f"{path}: {name} is listed twice")
            found[name] = int(gpus), [word.replace("{set}", f"{name}.h5") for word in words]
    return found


def pairs(words):
    """{key or option: value} of a command; paths by their last part, as sets store them."""
    found, waiting = {"program": words[0].rpartition("/")[2]}, None
    for word in words[1:]:
        word = word.rpartition("/")[2] if word.endswith(".toml") else word
        if waiting and not word.startswith("--"):
            found.setdefault(waiting, []).append(word)
            waiting = None
        elif word.startswith("--"):
            waiting = word
            found.setdefault(word, [])
        elif "=" in word:
            found[word.partition("=")[0]] = word.partition("=")[2]
        else:
            found["deck"] = word
    return found


def differences(path, lines):
    """Keys and options by which a set was not made as its line says; None: it has no line."""
    if path.stem not in lines:
        return None
    with h5py.File(path) as file:
        run = file["provenance/run"].attrs
        ran, ranks = pairs(text(run["argv"]).split()), int(run["ranks"])
    gpus, words = lines[path.stem]
    asked = pairs(words)
    found = [key for key in sorted(ran.keys() | asked.keys()) if ran.get(key) != asked.get(key)]
    return found + (["ranks"] if ranks != max(1, gpus) else [])


class Commands(unittest.TestCase):
    def test_every_folder_lists_the_command_of_every_set(self):
        folders = sorted({path.parent for path in PUBLISHED.glob("*/*.h5")})
        self.assertGreaterEqual(len(folders), 3)
        for folder in folders:
            self.assertTrue((folder / "commands.txt").exists(), folder)
            lines = listed(folder / "commands.txt")
            for path in sorted(folder.glob("*.h5")):
                found = differences(path, lines)
                self.assertIsNotNone(found, f"{folder / 'commands.txt'}: no line of {path.stem}")
                self.assertFalse(set(found) - mended(path), path)

    def test_a_difference_is_found(self):
        made = PUBLISHED / "h100x2" / "mlp_8_once.h5"
        line = (PUBLISHED / "h100x2" / "commands.txt").read_text(encoding="utf-8")
        line = next(one for one in line.splitlines() if " mlp_8_once " in one)
        for edited, found in (
                (line, []), (line.replace("--samples 30", "--samples 20"), ["--samples"]),
                (line.replace("global_batch_size=2", "global_batch_size=4"),
                 ["train.global_batch_size"]),
                (line.replace("hybrid-dense-1b", "dense-124m"), ["deck"]),
                (line.replace(" --modes off", ""), ["--modes"]), ("1" + line[1:], ["ranks"]),
                (line.replace("mlp_8_once", "other"), None)):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "commands.txt"
                path.write_text(edited + "\n", encoding="utf-8")
                self.assertEqual(differences(made, listed(path)), found, edited)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
