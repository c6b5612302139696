"""Runs of ours against what transformers computed: loss, logits, gradients, two optimizer steps,
greedy tokens."""
import json
import os
import pathlib
import resource
import subprocess

import h5py
import numpy

import published

# Both sides compute in one type, in other orders of summation: roundoff (2^-24 in fp32) times the
# square root of the longest sum (below 2000 products), times the depth of the model (4), with room.
TOLERANCE = {"float32": 1e-5, "float64": 1e-9}
# Weights behind two steps agree within TOLERANCE, what they moved by within STEP_TOLERANCE: Adam
# divides by the root of the mean square, so an element with a gradient near its own error moves by
# as much as the others (rate 1e-2 a step).
STEP_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
OPTIMIZER = ["optim.lr=1e-2", "optim.schedule=constant", "optim.warmup_steps=0",
             "optim.weight_decay=0.1", "optim.adam_beta1=0.9", "optim.adam_beta2=0.95",
             "optim.adam_eps=1e-8", "optim.clip_grad=1.0",
             "model.moe_expert_bias_update_rate=0"]  # transformers has no such update


class Programs:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        # The same kernels of OpenBLAS on every machine. Adam turns the rounding error of a gradient
        # near 0 into a whole step, so kernels with another order of sums may exceed TOLERANCE.
        self.env = dict(os.environ, OPENBLAS_CORETYPE="Haswell",
                        OMP_NUM_THREADS="1", OMP_PROC_BIND="false",
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def run(self, name, *arguments, expect=0, ranks=1):
        command = [str(self.folder / f"stowage_{name}"), *map(str, arguments)]
        if ranks > 1:
            command = ["mpirun", "--oversubscribe", "-np", str(ranks), *command]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=240)
        if done.returncode != expect:
            print(done.stdout, done.stderr)
            raise AssertionError(f"exit code {done.returncode}, expected {expect}: {command}")
        return done

    def limited(self, file_bytes, name, *arguments):
        """No file may be larger than that."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return subprocess.run([str(self.folder / f"stowage_{name}"), *map(str, arguments)],
                              env=self.env, capture_output=True, text=True, timeout=240,
                              preexec_fn=limit)

    def refuse(self, name, *arguments, says):
        """A usage error: exit code 2, one message that contains all of `says`."""
        message = self.run(name, *arguments, expect=2).stderr
        assert message.count("stowage: error:") == 1, message
        for words in says:
            assert words in message, f"'{words}' is not in: {message}"


def write_documents(programs, name, rows):
    """A Megatron data set with a document for each row."""
    pathlib.Path(f"{name}.jsonl").write_text(
        "".join(json.dumps({"text": row.tolist()}) + "\n" for row in rows))
    programs.run("data", "prepare", f"{name}.jsonl", "--out", name, "--tokenizer", "ids",
                 "--vocab-size", max(int(row.max()) for row in rows) + 1)


def write_tokens(programs, tokens):
    """The sequences, to train on and to evaluate. Returns keys."""
    write_documents(programs, "tokens", tokens)
    return ["data.source=megatron", "data.path=tokens.idx",
            "data.validation_path=tokens.idx", "eval.steps=0",
            f"train.seq_length={tokens.shape[1]}", f"train.micro_batch_size={len(tokens)}",
            f"train.global_batch_size={len(tokens)}"]


def relative_error(ours, theirs):
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    scale = numpy.linalg.norm(theirs.astype("f8"))
    return numpy.linalg.norm(ours.astype("f8") - theirs) / scale


def tensors_below(group):
    found = {}
    group.visititems(lambda name, item: found.update({name: item[:]})
                     if isinstance(item, h5py.Dataset) else None)
    return found


def dumped(programs, deck, keys, step, resume):
    path = f"step{step}.h5"
    programs.run("train", deck, *keys, *OPTIMIZER, f"run.steps={step}", f"run.output=run{step}.h5",
                 "checkpoint.directory=", f"checkpoint.resume={resume}", "--dump-step", step,
                 "--dump", path)
    return path


def error_of_logits(programs, keys, outputs, tolerance):
    """Of a run that only evaluates; its loss is that of the reference, too."""
    programs.run("train", "it.toml", *keys, "--evaluate-only", "--logits", "logits.h5",
                 "run.output=evaluation.h5")
    with h5py.File("evaluation.h5") as file:
        loss = file["/metrics/train/val_loss"][()]
        assert abs(loss - outputs["loss"][0]) <= tolerance * loss, (loss, outputs["loss"])
        perplexity = file["/metrics/train/val_perplexity"][()]
        assert abs(perplexity - numpy.exp(loss)) <= 1e-12 * perplexity, (perplexity, loss)
        assert len(file["/series/train/loss"]) == 0
        accuracy = file["/metrics/train/val_accuracy"][()]
        # Of each sequence all tokens but the first are targets of the ones before.
        guesses = outputs["logits"][:, :-1].argmax(axis=-1)
        hits = (guesses == outputs["tokens"][:, 1:]).mean()
        assert abs(accuracy - hits) < 1e-6, (accuracy, hits)
    with h5py.File("logits.h5") as file:
        shape = outputs["tokens"].shape
        tokens, logits = file["tokens"][:].reshape(shape), file["logits"][:].reshape(*shape, -1)
    assert (tokens == outputs["tokens"]).all()  # held-out data come in their own order
    return relative_error(logits, outputs["logits"])


def assert_same_tensors(a, b):
    a, b = published.read_folder(a), published.read_folder(b)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name, values in a.items():
        other = b[name]
        assert values.dtype == other.dtype and values.shape == other.shape, name
        assert values.tobytes() == other.tobytes(), name


def assert_greedy(programs, greedy, prompt):
    """Behind the first tokens of `greedy` the likeliest ones are the others."""
    made = len(greedy) - prompt
    programs.run("generate", "it.toml", f"train.seq_length={len(greedy)}", "--prompt",
                 " ".join(map(str, greedy[:prompt])), "--tokens", made, "--json", "greedy.jsonl")
    tokens = json.loads(pathlib.Path("greedy.jsonl").read_text())["tokens"]
    same = next((i for i in range(made) if tokens[i] != greedy[prompt + i]), made)
    assert same == made, f"after {same} tokens {tokens[same]} is not {greedy[prompt + same]}"


def check(family, what, found, limit):
    worst = max(found, key=found.get)
    print(f"{family}: largest relative error of {len(found)}, {what}: {found[worst]:.2e} of "
          f"{worst}, at most {limit:.0e}")
    assert found[worst] <= limit, found


def check_two_steps(family, programs, keys, folder):
    """What two optimizer steps from FOLDER/model leave, beside FOLDER/reference."""
    before = published.read_folder(folder / "model")
    after = published.read_safetensors(folder / "reference" / "updated.safetensors")
    weights, steps = {}, {}
    with h5py.File(dumped(programs, "it.toml", keys, 2, f"hf:{folder / 'model'}")) as file:
        for name, values in tensors_below(file["updated"]).items():
            start = published.tensor_of(family, name, before).astype("f8")
            theirs = published.tensor_of(family, name, after)
            weights[name] = relative_error(values, theirs)
            steps[name] = relative_error(values - start, theirs - start)
    dtype = values.dtype.name
    check(family, "weight behind two steps", weights, TOLERANCE[dtype])
    check(family, "step", steps, STEP_TOLERANCE[dtype])


def compare(family, programs, folder):
    """Runs from FOLDER/model and compares with FOLDER/reference; prints the largest errors."""
    folder = pathlib.Path(folder)
    outputs = published.read_safetensors(folder / "reference" / "outputs.safetensors")
    tolerance = TOLERANCE[outputs["logits"].dtype.name]
    keys = write_tokens(programs, outputs["tokens"])
    programs.run("convert", "import", folder / "model", "--out", "weights", "--deck", "it.toml")
    assert_greedy(programs, outputs["greedy"], prompt=8)
    errors = {}
    gradients = published.read_safetensors(folder / "reference" / "gradient.safetensors")
    # Once from the checkpoint, once from the folder itself.
    with h5py.File(dumped(programs, "it.toml", keys, 1, "weights/step_00000000.h5")) as file:
        loss = float(outputs["loss"][0])
        errors["loss"] = abs(file.attrs["loss"] - loss) / loss
        ours = tensors_below(file["gradient"])
        for name, values in ours.items():
            theirs = published.tensor_of(family, name, gradients)
            errors[f"gradient/{name}"] = relative_error(values, theirs)
    if "mtp_losses" in outputs:
        with h5py.File("run1.h5") as file:
            errors["mtp losses"] = relative_error(file["/series/mtp/loss"][0],
                                                  outputs["mtp_losses"])
    further = ["eval.mtp_loss=true"] if "mtp_losses" in outputs else []
    errors["logits"] = error_of_logits(programs, keys + further, outputs, tolerance)
    if further:
        with h5py.File("evaluation.h5") as file:
            errors["held-out mtp losses"] = relative_error(file["/series/mtp/val_loss"][0],
                                                           outputs["mtp_losses"])
    check(family, "gradient", errors, tolerance)
    check_two_steps(family, programs, keys, folder)
    return outputs
