"""What a run left, as stowage_accept reads it: figures from its JSON lines, which need no package;
names of devices, clocks, power and warnings from its result set, by h5py, or not at all.
"""
import hashlib
import json
import pathlib
import statistics

try:
    import h5py
except ImportError:
    h5py = None


def file_digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Run:
    """A run that was VALID: its files are NAME.jsonl, NAME.h5 and NAME.log."""

    def __init__(self, base):
        self.base = pathlib.Path(base)
        self.metrics, self.steps = {}, []
        for line in self.file("jsonl").read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            if told["event"] == "metric":
                self.metrics[told["tag"]] = told
            elif told["event"] == "step":
                self.steps.append(told["step_time"])

    def file(self, ending):
        return self.base.parent / f"{self.base.name}.{ending}"

    def value(self, tag):
        """None where it was not measured, as energy without a GPU."""
        return self.metrics[tag]["value"] if tag in self.metrics else None

    def interval(self, tag):
        """Median and ends of its 95 % interval, which are None below 6 samples."""
        return tuple(self.metrics[tag][key] for key in ("value", "ci95_low", "ci95_high"))

    def step_times(self):
        """Seconds of the timed steps: the last ones, those before warm up."""
        return self.steps[-self.metrics["train/step_time"]["median_of"]:]

    def warnings(self):
        """What its result set warns of, as the header of a run does."""
        if h5py is None:
            return []
        with h5py.File(self.file("h5")) as file:
            path = "provenance/system/warnings"
            return [row.decode() for row in file[path][()]] if path in file else []

    def facts(self):
        """What names the device of rank 0, and how it ran."""
        if h5py is None:
            return {}
        facts = self.facts_of(0)
        with h5py.File(self.file("h5")) as file:
            for name, unit in (("clock", "MHz"), ("power", "W"), ("temperature", "C")):
                if f"series/gpu/{name}" in file:
                    value = statistics.median(file[f"series/gpu/{name}"][()])
                    facts[f"{name} {unit}"] = float(value / (1e6 if unit == "MHz" else 1))
        return facts

    def facts_of(self, rank):
        """What names the device of a rank."""
        with h5py.File(self.file("h5")) as file:
            row = file["provenance/system/ranks"][rank]
        facts = {"host": row["host"].decode()}
        for name in ("gpu_name", "gpu_uuid", "gpu_pci"):
            if row[name]:
                facts[name] = row[name].decode()
        return facts

    def compute_of_ranks(self):
        """Seconds that each rank computed in a step, of a curve of one point."""
        with h5py.File(self.file("h5")) as file:
            found = []
            file["samples/scaling"].visititems(
                lambda _, node: found.append(node) if isinstance(node, h5py.Dataset) else None)
            point, = found
            return [float(word) for word in point.attrs["compute_s_of_ranks"].decode().split()]
