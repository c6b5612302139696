#!/usr/bin/python3
"""What users read and files hold, as the texts of this folder and of docs/ say: help, decks, the
schema, plans, refusals and answers.

Usage: texts_test.py CASE --bin FOLDER --source FOLDER. STOWAGE_WRITE_GOLDEN=1 writes the texts
anew (scripts/golden.sh).
"""
import concurrent.futures
import difflib
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "drivers"))
from process_cases import Cases  # noqa: E402

CASES = case = Cases()
FOLDER = pathlib.Path(__file__).parent
PROGRAMS = ("stowage_bench_comm", "stowage_bench_offload", "stowage_bench_scaling",
            "stowage_convert", "stowage_convert export", "stowage_convert import", "stowage_data",
            "stowage_data check", "stowage_data documents", "stowage_data prepare",
            "stowage_data stats", "stowage_generate", "stowage_plan", "stowage_train")

# Behind tiny.toml, so that programs with CUDA say the same, with a GPU or without.
HOST = """
[execution]
backend = "host"
"""

LLAMA = """{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1,
"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "rms_norm_eps": 1e-6,
"hidden_act": "silu", "max_position_embeddings": 4096, "tie_word_embeddings": true}"""

LARGE = """include = "tiny.toml"
[model]
hidden_size = 1536
vocab_size = 32000
num_attention_heads = 12
ffn_hidden_size = 6144
mamba_num_heads = 48
mamba_head_dim = 64
mamba_state_dim = 128
mamba_chunk_size = 128
num_moe_experts = 16
moe_ffn_hidden_size = 768
moe_shared_expert_hidden_size = 1536
[train]
dtype = "bf16"
seq_length = 4096
[data]
synthetic_tokens = 20000000
synthetic_document_length = 3000
"""

PAGE = """# Programs

What `--help` prints of each program. The keys of a deck (`--help-keys`) are in [deck.md](deck.md).
`scripts/golden.sh` writes this page; do not edit it. `stowage_bench_kernels` and `stowage_ceilings`
are built with CUDA alone: [drivers/](../../drivers/README.md) says what they do.

Programs that take a deck take overrides `section.key=value` behind it. They end with one of these
[exit codes](exit_codes.md).
"""


class Texts:
    def __init__(self, bin_folder, source):
        self.bin = pathlib.Path(bin_folder)
        self.source = pathlib.Path(source)

    def run(self, program, *arguments):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return subprocess.run([self.bin / program, *arguments], env=env, text=True, timeout=60,
                              check=True, stdout=subprocess.PIPE).stdout

    def printed(self, command, usual, more):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   PATH=f"{self.bin}:{os.environ['PATH']}")
        with tempfile.TemporaryDirectory() as folder:
            deck = self.source / "ctest" / "drivers" / "tiny.toml"
            tiny = deck.read_text(encoding="utf-8") + more
            for name, text in (("tiny.toml", tiny), ("large.toml", LARGE), ("llama.json", LLAMA)):
                (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
            ran = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True,
                                 timeout=60, check=False, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = [line.rstrip() for line in ran.stdout.rstrip().splitlines()]
        code = [] if ran.returncode == usual else [f"exit code {ran.returncode}"]
        return "\n".join([f"$ {command}", *lines, *code])

    def decks(self):
        return sorted((self.source / "inputs").glob("*.toml"))


def is_kept(name, text):
    """Compares a text with the file that keeps it, or writes that file."""
    kept = FOLDER / name
    if os.environ.get("STOWAGE_WRITE_GOLDEN"):
        kept.write_text(text, encoding="utf-8")
        return
    then = kept.read_text(encoding="utf-8")
    differs = list(difflib.unified_diff(then.splitlines(), text.splitlines(), str(name),
                                        "this build", lineterm="", n=1))
    assert not differs, "\n".join(differs)


def once_each(texts):
    """Texts by name as their paragraphs, each once under the names of all that have it."""
    names = {}
    for name, text in texts.items():
        for paragraph in text.strip().split("\n\n"):
            names.setdefault(paragraph.strip("\n"), []).append(name)
    return "".join(f"=== {', '.join(which)}\n{paragraph}\n" for paragraph, which in names.items())


@case
def help_is_kept(t):
    texts = {program: t.run(*program.split(), "--help") for program in PROGRAMS}
    texts["stowage_train --help-keys"] = t.run("stowage_train", "--help-keys")
    is_kept("help.txt", once_each(texts))


@case
def the_page_of_programs_is_kept(t):
    page = PAGE + "".join(f"\n## {program}\n\n```\n{t.run(*program.split(), '--help').strip()}"
                          "\n```\n" for program in PROGRAMS)
    is_kept(t.source / "docs" / "reference" / "programs.md", page)


@case
def plans_that_the_guide_draws_are_kept(t):
    text, deck = "", "inputs/hybrid-dense-1b.toml"
    for words in ("", " offload.policy=auto offload.device_budget_bytes=26GiB"):
        printed = t.run("stowage_plan", t.source / deck, "--machine", "h200", *words.split())
        lines = [line.rstrip() for line in printed.splitlines()]
        text += "\n".join([f"$ stowage_plan {deck} --machine h200{words}", *lines, ""])
    is_kept(t.source / "docs" / "figures" / "plans.txt", text)


@case
def resolved_decks_are_kept(t):
    texts = {deck.stem: t.run("stowage_plan", deck, "--print-config") for deck in t.decks()}
    sections = {}
    for deck, text in texts.items():
        for section in text.strip().split("\n\n"):
            title, *lines = section.split("\n")
            for line in lines:
                sections.setdefault(title, {}).setdefault(line, []).append(deck)
    out = ""
    for title, lines in sections.items():
        out += title + "\n"
        for line, decks in lines.items():
            which = "" if len(decks) == len(texts) else f"  # {' '.join(decks)}"
            out += f"{line}{which}\n"
    is_kept("decks.txt", out)


def commands_are_kept(t, name, usual, more=""):
    """Of the commands that the text itself holds, each line behind a "$ " in a folder of its own
    with tiny.toml and more, large.toml and llama.json: what it prints, and its exit code unless
    that is the usual one. A further one is a further line."""
    kept = (FOLDER / name).read_text(encoding="utf-8")
    title = kept.partition("\n$ ")[0]
    commands = [line[2:] for line in kept.splitlines() if line.startswith("$ ")]
    assert commands and len(set(commands)) == len(commands), "a command stands twice"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda command: t.printed(command, usual, more), commands)
        is_kept(name, "\n".join([title, *texts]) + "\n")


@case
def refusals_are_kept(t):
    commands_are_kept(t, "refusals.txt", 2, HOST)


@case
def answers_are_kept(t):
    commands_are_kept(t, "answers.txt", 0)


@case
def the_schema_is_kept(t):
    """Every column of the table of result sets but the last, its explanation."""
    text = (t.source / "results" / "schema.md").read_text(encoding="utf-8")
    rows = [line.rsplit("|", 2)[0].strip("| ") for line in text.splitlines()
            if line.startswith("| /")]
    assert rows
    is_kept("schema.txt", "\n".join([text.splitlines()[0], *rows]) + "\n")


if __name__ == "__main__":
    CASES.run(Texts, "bin", "source")
