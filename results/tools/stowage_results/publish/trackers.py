"""Hands the series of runs to experiment trackers: trackers.py SETS --tensorboard DIR, or --wandb
DIR. Both formats are written by their own libraries.

Each set becomes the run of its file's name. Its scalars are the series over training steps, by the
names that they have in the set: loss, learning rate, gradient norm, tokens, step time, validation
losses, load of experts by layer, clock and power. The largest of all ranks stands for them. Deck
and verdict are the run's configuration. A run that is there already is refused, not added to.

TensorBoard: `tensorboard --logdir DIR`. Weights & Biases: an offline run, which `wandb sync` sends
by the folder that is printed; nothing is sent here.

Exit codes: 0 written, 2 a file is not ours or is truncated, or a run is there already, 3 the
tracker's library is missing.
"""

import argparse
import datetime
import pathlib

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results.packages import require
from stowage_results.plain_files import Refused
from stowage_results.result_files import Result, largest_of_ranks, text

# A column a layer; other columns are ranks.
BY_LAYER = ("router_load/", "gradient_norms/", "activation_norms/", "weight_norms/",
            "update_norms/", "mtp/")


def scalars(result):
    """[(tag, steps, values)] of all series over steps, in the order of their names."""
    found = []
    for path in result.datasets("series"):
        scales = result.file[f"series/{path}"].dims
        name = scales[0][0].name.rpartition("/")[2] if len(scales) and len(scales[0]) else ""
        series = result.series(path)
        if name not in ("step", "val_step") or series is None or series[1].dtype.kind not in "fiu":
            continue
        steps, values = series
        if path.startswith(BY_LAYER) and values.ndim == 2:
            found += [(f"{path}/{column}", steps, values[:, column])
                      for column in range(values.shape[1])]
        else:
            found.append((path, steps, largest_of_ranks(values)))
    return found


def seconds(result, steps):
    """When steps ended, in seconds since 1970: as far as the set says how long each took."""
    start = datetime.datetime.fromisoformat(text(result.attribute("provenance/run", "start")))
    begin = start.timestamp()
    taken = result.series("train/step_time")
    if taken is None:
        return np.full(len(steps), begin)
    return begin + np.interp(steps, taken[0], np.cumsum(largest_of_ranks(taken[1])))


def configuration(result):
    """The deck's keys, with what tells the run."""
    tells = {"verdict": result.verdict, "uuid": text(result.file.attrs["uuid"]),
             "commit": text(result.file.attrs["git_describe"])}
    keys = {key: value.item() if isinstance(value, np.generic) else
            value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in result.config().items()}
    return tells | keys


def cell(value):
    """Code in a table of Markdown: TensorBoard's renderer ends it at these two signs."""
    return str(value).replace("`", "'").replace("|", "\u2502")


def write_tensorboard(result, folder):
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    writer = EventFileWriter(str(folder))
    rows = "\n".join(f"| {key} | `{cell(value)}` |" for key, value in configuration(result).items())
    deck = summary_pb2.Summary.Value(
        tag="deck", tensor=tensor_util.make_tensor_proto(f"| key | value |\n| --- | --- |\n{rows}"),
        metadata=summary_pb2.SummaryMetadata(
            plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")))
    writer.add_event(event_pb2.Event(wall_time=seconds(result, [0])[0], step=0,
                                     summary=summary_pb2.Summary(value=[deck])))
    for tag, steps, values in scalars(result):
        for step, value, at in zip(steps, values, seconds(result, steps)):
            scalar = summary_pb2.Summary.Value(tag=tag, simple_value=float(value))
            writer.add_event(event_pb2.Event(wall_time=at, step=int(step),
                                             summary=summary_pb2.Summary(value=[scalar])))
    writer.close()
    return folder


def write_wandb(result, folder):
    import wandb

    folder.mkdir(parents=True)
    by_step = {}
    for tag, steps, values in scalars(result):
        for step, value in zip(steps, values):
            by_step.setdefault(int(step), {})[tag] = float(value)
    run = wandb.init(mode="offline", dir=str(folder), name=folder.name, project="stowage",
                     config=configuration(result),
                     settings=wandb.Settings(silent=True, console="off", disable_git=True,
                                             save_code=False, x_disable_stats=True,
                                             x_disable_meta=True))
    for step in sorted(by_step):
        run.log(by_step[step], step=step)
    run.finish()
    return next(folder.glob("wandb/offline-run-*"))


TRACKERS = {"tensorboard": ("tensorboard", write_tensorboard), "wandb": ("wandb", write_wandb)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    into = parser.add_mutually_exclusive_group(required=True)
    for name in TRACKERS:
        into.add_argument(f"--{name}", metavar="DIR")
    arguments = parser.parse_args()
    name = next(one for one in TRACKERS if getattr(arguments, one) is not None)
    package, write = TRACKERS[name]
    require(package)
    runs = {}
    for path in arguments.sets:
        result = Result(path)
        folder = pathlib.Path(getattr(arguments, name)) / pathlib.Path(path).stem
        if folder in runs:
            raise Refused(f"{path}: {runs[folder].path} has the same name; rename one of them")
        if folder.exists():
            raise Refused(f"{folder}: is there already; remove it, or name another folder")
        if not scalars(result):
            raise Refused(f"{path}: has no series over steps")
        runs[folder] = result
    for folder, result in runs.items():
        print(write(result, folder))
    return 0
