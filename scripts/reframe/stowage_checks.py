"""Stowage as checks of a site's ReFrame (4.x): is the machine as it was, and as fast?

    reframe -c scripts/reframe -r                     # the quick start on CPU cores, any system
    reframe -c scripts/reframe -r -S gpu=h200         # and the standard decks on one GPU, in bands

`-S bin=FOLDER` says where the programs are (build/cuda/bin or build/host/bin of this checkout). A
run is good if its own verdict is: losses, finite differences and repeated steps are checked inside.
What is measured is held to bands around what was published for the GPU that is named.
"""
import json
import os

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (parameter, performance_function, run_after, run_before,
                                   sanity_function, variable)

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

with open(os.path.join(SOURCE, "scripts", "sites", "benchmarks.json"), encoding="utf-8") as file:
    TABLE = json.load(file)
BENCHMARKS = TABLE["benchmarks"]
BELOW, ABOVE = TABLE["band"]  # boards of one kind differ by some per cent; more above is news, too


class Trains(rfm.RunOnlyRegressionTest):
    """A run of stowage_train whose verdict is VALID."""
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    tags = {"benchmark"}
    bin = variable(str, value="")
    deck = parameter()
    time_limit = "20m"

    @run_after("init")
    def take_row(self):
        self.row = BENCHMARKS[self.deck]
        self.descr = "Stowage: " + self.row["about"]
        self.num_tasks = self.row["ranks"]
        self.keys = ["execution.backend=" + ("cuda" if self.row["gpus"] else "host")]
        if self.row["steps"]:
            self.keys.append(f"run.steps={self.row['steps']}")

    @run_before("run")
    def say_what_runs(self):
        folders = [self.bin] if self.bin else [os.path.join(SOURCE, "build", preset, "bin")
                                               for preset in ("cuda", "host")]
        found = [folder for folder in folders
                 if os.path.exists(os.path.join(folder, "stowage_train"))]
        self.skip_if(not found, f"no stowage_train in {' or '.join(folders)}; see README.md")
        self.executable = os.path.join(os.path.abspath(found[0]), "stowage_train")
        self.executable_opts = [os.path.join(SOURCE, "inputs", f"{self.deck}.toml"),
                                "run.output=result.h5", *self.keys]
        self.keep_files = ["result.h5"]

    @sanity_function
    def is_valid(self):
        return sn.assert_found(r"^STOWAGE RESULT VALID ", self.stdout)

    @performance_function("tokens/s")
    def tokens_per_s(self):
        return sn.extractsingle(r"^STOWAGE RESULT VALID +train/tokens_per_s=(\S+)", self.stdout, 1,
                                float)


@rfm.simple_test
class QuickStart(Trains):
    """Rows without GPUs."""
    deck = parameter(name for name, one in BENCHMARKS.items() if not one["gpus"])

    @run_after("init")
    def find_the_book(self):
        book = os.path.join(SOURCE, self.row["data"])
        self.keys.append(f"data.path={book}")
        self.skip_if(not os.path.exists(book), "run scripts/quickstart.sh once: it gets the book")


@rfm.simple_test
class OneGpu(Trains):
    """Rows with a GPU, half a minute each."""
    gpu = variable(str, value="")
    deck = parameter(name for name, one in BENCHMARKS.items() if one["gpus"])
    num_gpus_per_node = 1

    @run_after("init")
    def take_bands(self):
        published = self.row["published"]
        self.skip_if(not self.gpu, "-S gpu=NAME is not given")
        self.skip_if(self.gpu not in published,
                     f"gpu={self.gpu}: nothing is published; allowed: {', '.join(published)}")
        if self.gpu in published:
            self.reference = {"*": {"tokens_per_s": (published[self.gpu], BELOW, ABOVE,
                                                     "tokens/s")}}
