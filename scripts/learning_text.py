#!/usr/bin/env python3
"""Makes a text to compare trainings on: documentation and dictionaries that Debian distributes.

    scripts/learning_text.py FOLDER [--tokens N]

Downloads packages by `apt-get download` (nothing is installed), takes the text of their pages,
leaves out lines that came before, shuffles pieces of 12,000 characters, trains a byte-level BPE of
32,768 tokens on some of them, and writes FOLDER/ids.jsonl, lists of tokens, and
FOLDER/tokenizer.json. Then:

    stowage_data prepare FOLDER/ids.jsonl --tokenizer ids --vocab-size 32768 --append-token 0 \\
      --out FOLDER/learn

Needs Debian or a relative of it, and the Python package tokenizers. Other versions of the packages
give other tokens: results/published/h200_learning names those of its sets by their digest.
"""

import argparse
import gzip
import html.parser
import json
import pathlib
import random
import re
import subprocess
import tempfile

PACKAGES = ["anarchism", "dict-gcide", "dict-foldoc", "dict-jargon", "dict-wn", "debian-handbook",
            "developers-reference", "debian-policy", "debian-reference-en", "python3.11-doc"]
# Indices, logs of changes, pictures' folders, pages in other languages.
LEFT_OUT = re.compile(r"search|genindex|contents|changelog|copyright|\.index$|/_|"
                      r"/(?!en-US)[a-z]{2}-[A-Z]")
VOCABULARY = 32768
PIECE = 12000  # characters
BLOCK = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "pre", "dt", "dd", "table"}
SILENT = {"script", "style", "nav", "head", "footer"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self.silent = [], 0

    def handle_starttag(self, tag, attrs):
        self.silent += tag in SILENT
        if tag in BLOCK:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.silent -= tag in SILENT and self.silent > 0

    def handle_data(self, data):
        if not self.silent:
            self.parts.append(data)


def text_of(path):
    data = path.read_bytes()
    name = path.name
    if name.endswith((".gz", ".dz")):
        data, name = gzip.decompress(data), name[:-3]
    text = data.decode("utf-8", "replace")
    if name.endswith((".html", ".htm")):
        page = Page()
        page.feed(text)
        return "".join(page.parts)
    return text if name.endswith((".dict", ".txt")) else ""


def pieces(folder, package, seen):
    """Texts of a package, without long lines that were there before."""
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True, capture_output=True)
    archive = next(folder.glob(f"{package}_*.deb"))
    root = folder / package
    subprocess.run(["dpkg", "-x", archive, root], check=True)
    for path in sorted(root.rglob("*")):
        inside = str(path.relative_to(root))
        if not path.is_file() or path.is_symlink() or LEFT_OUT.search(inside):
            continue
        lines = []
        for line in text_of(path).splitlines():
            line = line.rstrip()
            if len(line) > 60:
                if line in seen:
                    continue
                seen.add(line)
            lines.append(line)
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        for begin in range(0, len(text), PIECE):
            piece = text[begin:begin + PIECE]
            if len(piece) > 400 and sum(ord(c) > 127 for c in piece) < len(piece) / 30:
                yield piece


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=20_500_000, help="at least so many")
    arguments = parser.parse_args()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    arguments.folder.mkdir(parents=True, exist_ok=True)
    seen, texts = set(), []
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            before = len(texts)
            texts.extend(pieces(pathlib.Path(folder), package, seen))
            print(f"{package}: {len(texts) - before} pieces")
    random.Random(7).shuffle(texts)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts[:2500], trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(arguments.folder / "tokenizer.json"))
    count = 0
    with open(arguments.folder / "ids.jsonl", "w", encoding="utf-8") as out:
        for text in texts:
            if count >= arguments.tokens:
                break
            ids = tokenizer.encode(text).ids
            print(json.dumps({"text": ids}), file=out)
            count += len(ids)
    print(f"{count} tokens" + ("" if count >= arguments.tokens else ": fewer than asked for"))


if __name__ == "__main__":
    main()
