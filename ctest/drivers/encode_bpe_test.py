#!/usr/bin/python3
"""drivers/data/encode_bpe.py: what it encodes, and what it refuses in one sentence.

Usage: encode_bpe_test.py FOLDER_OF_ENCODE_BPE. Skipped (77) without the package tokenizers.
"""
import bz2
import contextlib
import gzip
import importlib.util
import io
import json
import lzma
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
import chat_template  # noqa: E402
import encode_bpe  # noqa: E402

BPE = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
       "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
       "vocab": {"a": 0, "b": 1, "ab": 900}, "merges": ["a b"]}
TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
             "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": BPE}
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PADDING = {"strategy": {"Fixed": 10}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
           "pad_type_id": 0, "pad_token": "a"}


def encoded(lines, **changes):
    """Exit code, lines written and what was said, of a tokenizer with other settings."""
    pathlib.Path("t.json").write_text(json.dumps({**TOKENIZER, **changes}))
    pathlib.Path("in.jsonl").write_bytes(lines)
    sys.argv = ["encode_bpe.py", "t.json", "in.jsonl"]
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = encode_bpe.main()
    return code, [json.loads(line) for line in out.getvalue().splitlines()], said.getvalue()


class EncodeBpe(unittest.TestCase):
    def refused(self, lines, *parts, **changes):
        code, _, said = encoded(lines, **changes)
        self.assertEqual(code, 2, said)
        for part in parts:
            self.assertIn(part, said)
        self.assertEqual(said.count("encode_bpe.py: "), 1, said)
        self.assertNotIn("Traceback", said)

    def test_the_size_is_above_the_largest_id(self):
        code, ids, said = encoded(b'{"text":"abab"}\n{"prompt":"a","response":"b","x":NaN}\n')
        self.assertEqual((code, ids), (0, [{"text": [900, 900]}, {"prompt": [0], "response": [1]}]))
        self.assertIn("--vocab-size 901\n", said)

    def test_truncation_and_padding_are_not_applied(self):
        for changes in ({"truncation": TRUNCATION}, {"padding": PADDING},
                        {"truncation": TRUNCATION, "padding": PADDING}):
            _, ids, said = encoded(b'{"text":"ababab"}\n{"text":"b"}\n', **changes)
            self.assertEqual(ids, [{"text": [900, 900, 900]}, {"text": [1]}])
            self.assertIn("are not applied", said)

    def test_dropout_is_refused(self):
        self.refused(b'{"text":"ab"}\n', "t.json", "dropout of 0.9", model={**BPE, "dropout": 0.9})
        self.assertEqual(encoded(b'{"text":"ab"}\n', model={**BPE, "dropout": 0.0})[0], 0)

    def test_lines_are_those_of_prepare(self):
        lines = b'\xef\xbb\xbf{"text":"a"}\r\n \r\n\xef\xbb\xbf{"text":"b\\u2028"}'
        code, ids, _ = encoded(lines)
        self.assertEqual((code, ids), (0, [{"text": [0]}, {"text": [1]}]))
        for line in (b'{"text":1}', b'{"text":"a","prompt":"b"}', b'{"prompt":"a"}', b"[1]",
                     b'{"prompt":"a","response":null}'):
            self.refused(b'{"text":"a"}\n' + line, "in.jsonl:2", '"prompt" and "response"')

    def test_bad_bytes_are_named_by_line(self):
        good = b'{"text":"a"}\n'
        self.refused(good + b'{"text":"caf\xe9"}', "in.jsonl:2", "not UTF-8, column 13")
        self.refused(good + b'{"text":"a\\ud83d"}', "in.jsonl:2", '"text"',
                     "\\ud83d, at character 2")
        self.refused(good + b'{"text":"a"', "in.jsonl:2", "not JSON, column 12")
        self.refused(good + b'{"text":"a"}\r{"text":"b"}', "in.jsonl:2", "not JSON")
        self.refused(good + b"[" * 100000, "in.jsonl:2", "nested too deeply")
        self.refused(b"\x1f\x8b\x08\x00", "in.jsonl: Compressed file ended")

    def expect_unpacked(self, pack):
        lines = b'{"text":"ab"}\n{"text":"a"}\n'
        packed = pack(lines)
        for whole in (packed, pack(lines[:14]) + pack(lines[14:])):
            self.assertEqual(encoded(whole)[:2], (0, [{"text": [900]}, {"text": [0]}]))
        for cut in (packed[:-1], packed + packed[:-3]):
            self.refused(cut, "in.jsonl: Compressed file ended")

    def test_compressed_lines_are_those_of_the_file(self):
        for pack in (gzip.compress, bz2.compress, lzma.compress):
            self.expect_unpacked(pack)

    @unittest.skipUnless(importlib.util.find_spec("zstandard"), "the package zstandard is missing")
    def test_lines_of_zstd_are_those_of_the_file(self):
        import zstandard
        self.expect_unpacked(zstandard.ZstdCompressor().compress)
        packed = bytearray(zstandard.ZstdCompressor().compress(b'{"text":"ab"}\n'))
        packed[5] ^= 255
        self.refused(bytes(packed), "in.jsonl: ")

    def test_turns_are_encoded_apart(self):
        self.assertEqual(encoded(b'{"turns":["a","b","ab"]}\n{"turns":[]}')[:2],
                         (0, [{"turns": [[0], [1], [900]]}, {"turns": []}]))
        self.refused(b'{"turns":"a"}', "in.jsonl:1", '"turns", a list of strings')
        self.refused(b'{"turns":["a",["b"]]}', "in.jsonl:1", "a list of strings")

    def test_a_failing_pattern_is_named_by_line(self):
        split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                 "invert": False}
        self.refused(b'{"text":"a"}\n{"text":"' + b"a" * 60 + b'b"}\n', "in.jsonl:2",
                     "the tokenizer fails", pre_tokenizer=split)

    def test_files_that_cannot_be_read(self):
        self.refused(b'{"text":"a"}\n', "t.json", model=[])
        os.mkdir("folder")
        sys.argv = ["encode_bpe.py", "t.json", "folder"]
        said = io.StringIO()
        pathlib.Path("t.json").write_text(json.dumps(TOKENIZER))
        with contextlib.redirect_stderr(said):
            self.assertEqual(encode_bpe.main(), 2)
        self.assertIn("folder: Is a directory", said.getvalue())


CHATML = """{% for m in messages %}<{{ m.role }}>
{% if m.role == 'assistant' %}{% generation %}
{{ m.content }}<end>
{% endgeneration %}{% else %}
{{ m.content }}<end>
{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>
{% endif %}"""


@unittest.skipUnless(importlib.util.find_spec("jinja2"), "the package jinja2 is missing")
class Chat(unittest.TestCase):
    def turns(self, roles, template=CHATML):
        pathlib.Path("chat_template.jinja").write_text(template)
        messages = [{"role": role, "content": f"{role[0]}{n}"} for n, role in enumerate(roles)]
        return chat_template.ChatTemplate("tokenizer.json").turns(messages, {})

    def test_every_turn_of_an_assistant_is_predicted(self):
        self.assertEqual(self.turns(["system", "user", "assistant", "user", "assistant"]),
                         ["<system>\ns0<end>\n<user>\nu1<end>\n<assistant>\n", "a2<end>\n",
                          "<user>\nu3<end>\n<assistant>\n", "a4<end>\n"])
        self.assertEqual(self.turns(["user", "assistant", "assistant", "user"]),
                         ["<user>\nu0<end>\n<assistant>\n", "a1<end>\n", "<assistant>\n",
                          "a2<end>\n", "<user>\nu3<end>\n"])
        self.assertEqual(self.turns(["assistant", "user"]),
                         ["", "<assistant>\na0<end>\n", "<user>\nu1<end>\n"])
        self.assertEqual(self.turns(["user"]), ["<user>\nu0<end>\n"])
        self.assertEqual(self.turns([]), [])

    def test_a_turn_that_changes_later_is_refused(self):
        forgets = CHATML.replace("{{ m.content }}<end>\n{% endgen",
                                 "{% if loop.last %}thought {% endif %}{{ m.content }}<end>\n"
                                 "{% endgen")
        self.assertEqual(len(self.turns(["user", "assistant"], forgets)), 2)
        with self.assertRaisesRegex(chat_template.Refused, "message 2 is not written the same"):
            self.turns(["user", "assistant", "user"], forgets)

    def test_templates_are_found_and_faults_named(self):
        for name in ("chat_template.jinja", "tokenizer_config.json"):
            pathlib.Path(name).unlink(missing_ok=True)
        line = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'
        code, _, said = encoded(line)
        self.assertEqual(code, 2)
        self.assertIn("in.jsonl:1: .: neither chat_template.jinja", said)
        config = {"bos_token": {"content": "a"}, "eos_token": "b",
                  "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}"
                                   "{{ eos_token }}{% endfor %}"}
        pathlib.Path("tokenizer_config.json").write_text(json.dumps(config))
        self.assertEqual(encoded(line)[:2], (0, [{"turns": [[0, 900], [1, 1]]}]))
        pathlib.Path("chat_template.jinja").write_text("{{ raise_exception('no such role') }}")
        self.assertIn("fails: no such role", encoded(line)[2])
        pathlib.Path("chat_template.jinja").write_text("{% for %}")
        self.assertIn("chat_template.jinja: ", encoded(line)[2])
        pathlib.Path("chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
        self.assertIn("fails: ", encoded(line)[2])
        self.assertIn('"role"', encoded(b'{"messages":["a"]}')[2])
        pathlib.Path("chat_template.jinja").unlink()


if __name__ == "__main__":
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        print("skipped: the package tokenizers is missing")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        unittest.main()
