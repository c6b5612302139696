#!/usr/bin/env python3
"""What tools get of a set, beside what h5py says of the file: stored_test.py TOOLS."""

import importlib.util
import pathlib
import sys
import tempfile
import unittest

if not importlib.util.find_spec("h5py"):
    print(f"skipped: no h5py for {sys.executable}")
    sys.exit(77)

import h5py  # noqa: E402
import numpy  # noqa: E402

TOOLS = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(TOOLS))

from stowage_results.inspection import read_set  # noqa: E402

PUBLISHED = TOOLS.parent / "published/h200"
OF_SCALES = ("DIMENSION_LIST", "REFERENCE_LIST")


def odd_file(path):
    """Every kind of value that is let through."""
    with h5py.File(path, "w") as file:
        table = numpy.dtype([("a", "i8"), ("b", "f8"), ("c", "S4")])
        words = numpy.dtype([("a", "i8"), ("c", h5py.string_dtype())])
        for name, value in {
                "text": "späß", "no_text": "", "texts": numpy.array(["a", "bcd", ""], object),
                "bytes": numpy.bytes_(b"abc"), "no_utf8": b"\xff\xfe", "yes": True,
                "list": [b"a", b"bb"], "cube": numpy.arange(8).reshape(2, 2, 2), "one": 7,
                "half": 0.5, "nan": numpy.nan, "f4": numpy.float32(1.5), "u1": numpy.uint8(7),
                "other_end": numpy.array(2.5, ">f8")}.items():
            file.attrs[name] = value
        file.create_group("empty").attrs["x"] = 1
        file["group/table"] = numpy.array([(1, 2.5, b"xy"), (2, -1, b"")], table)
        file.create_dataset("group/words", data=numpy.array([(1, "one"), (2, "ö")], words))
        file.create_dataset("group/lines", data=["one", "three"], dtype=h5py.string_dtype())
        file["group/text"] = "of one length or another"
        file["group/scalar"] = 3.5
        file["none"] = numpy.zeros((0, 3))
        file["null"] = h5py.Empty("f8")
        file["series/step"] = numpy.arange(4)
        file["series/step"].make_scale("step")
        file.create_dataset("series/loss", data=numpy.ones((4, 2)), chunks=(2, 2), shuffle=True,
                            compression="gzip").dims[0].attach_scale(file["series/step"])


class Stored(unittest.TestCase):
    def same_values(self, wanted, found, where):
        if isinstance(wanted, h5py.Empty):
            self.assertIsInstance(found, h5py.Empty, where)
        elif isinstance(wanted, numpy.ndarray):
            self.assertEqual(wanted.shape, found.shape, where)
            self.assertEqual(wanted.dtype.names, found.dtype.names, where)
            for name in wanted.dtype.names or ((),):
                numpy.testing.assert_array_equal(wanted[name], found[name], str(where))
        else:
            self.assertEqual(repr(wanted), repr(found).replace("numpy.bytes_", ""), where)

    def same(self, path):
        stored, seen = read_set(path), ["/"]

        def visit(name, node):
            seen.append(f"/{name}".replace("//", "/"))
            mine = stored.nodes[seen[-1]]
            self.assertEqual(set(node.attrs), set(mine.attrs), name)
            for key in set(node.attrs) - set(OF_SCALES):
                self.same_values(node.attrs[key], mine.attrs[key], (name, key))
            if isinstance(node, h5py.Group):
                self.assertEqual([*node], [*mine], name)
                return
            self.same_values(node[()], mine[()], name)
            self.assertEqual(node.shape, mine.shape, name)
            scales = [[one.name for one in of.values()] for of in node.dims] if node.shape else []
            self.assertEqual(scales, [[one.name for one in of] for of in mine.dims], name)
        with h5py.File(path) as file:
            visit("", file)
            file.visititems(visit)
        self.assertEqual(set(seen), set(stored.nodes))

    def test_every_kind_of_value(self):
        with tempfile.TemporaryDirectory() as folder:
            odd_file(f"{folder}/odd.h5")
            self.same(f"{folder}/odd.h5")

    def test_published_sets(self):
        for name in ("train_dense_124m", "ceilings", "offload_aside_dense_1b"):
            self.same(PUBLISHED / f"{name}.h5")

    def test_what_is_not_there(self):
        root = read_set(PUBLISHED / "train_dense_124m.h5").root
        self.assertIsNone(root.get("series/none"))
        self.assertNotIn("series/none", root)
        with self.assertRaisesRegex(KeyError, "there is no /series/none"):
            root["series/none"]
        self.assertIs(root["series"]["train"]["loss"], root["series/train/loss"])
        self.assertIs(root["config"]["/series/train/loss"], root["series/train/loss"])
        self.assertIn("/series/train/loss", root)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
