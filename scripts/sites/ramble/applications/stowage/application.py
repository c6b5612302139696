# Made by scripts/sites/make.py of benchmarks.json: change these.
from ramble.appkit import *


class Stowage(ExecutableApplication):
    """Trains hybrid language models over MPI and CUDA, and checks what it trains."""

    name = "stowage"
    tags("benchmark-app", "machine-learning")

    executable(
        "train",
        "{stowage_bin}/stowage_train {stowage_source}/inputs/{deck}.toml {keys} "
        "run.output={experiment_run_dir}/result.h5",
        use_mpi=True,
    )

    figure_of_merit(
        "tokens per second",
        fom_regex=r"^STOWAGE RESULT VALID +train/tokens_per_s=(?P<rate>\S+)",
        group_name="rate",
        units="tokens/s",
    )
    success_criteria("valid", mode="string", match=r"^STOWAGE RESULT VALID ")
    success_criteria(
        "in_band",
        mode="fom_comparison",
        fom_name="tokens per second",
        formula="{published} == 0 or "
        "(0.95 * {published} <= {value} and {value} <= 1.1 * {published})",
    )

    # Two ranks on CPU cores train on the book; its deck has bands for the losses.
    workload("quickstart", executables=["train"])
    workload_variable(
        "deck",
        default="quickstart",
        description="Deck of inputs/",
        workloads=["quickstart"],
    )
    workload_variable(
        "keys",
        default="execution.backend=host data.path={stowage_source}/data/kjv.txt",
        description="Overrides of the deck",
        workloads=["quickstart"],
    )
    workload_variable(
        "published",
        default="0",
        description="tokens/s to hold it against; 0: none",
        workloads=["quickstart"],
    )

    # A dense model of 124 million parameters on one GPU.
    workload("dense-124m", executables=["train"])
    workload_variable(
        "deck",
        default="dense-124m",
        description="Deck of inputs/",
        workloads=["dense-124m"],
    )
    workload_variable(
        "keys",
        default="execution.backend=cuda run.steps=400",
        description="Overrides of the deck",
        workloads=["dense-124m"],
    )
    workload_variable(
        "published",
        default="0",
        description="tokens/s to hold it against; 0: none",
        workloads=["dense-124m"],
    )

    # A hybrid dense model of a billion parameters on one GPU.
    workload("hybrid-dense-1b", executables=["train"])
    workload_variable(
        "deck",
        default="hybrid-dense-1b",
        description="Deck of inputs/",
        workloads=["hybrid-dense-1b"],
    )
    workload_variable(
        "keys",
        default="execution.backend=cuda run.steps=120",
        description="Overrides of the deck",
        workloads=["hybrid-dense-1b"],
    )
    workload_variable(
        "published",
        default="0",
        description="tokens/s to hold it against; 0: none",
        workloads=["hybrid-dense-1b"],
    )

    # A hybrid model of two billion parameters with experts on one GPU.
    workload("hybrid-moe-2b", executables=["train"])
    workload_variable(
        "deck",
        default="hybrid-moe-2b",
        description="Deck of inputs/",
        workloads=["hybrid-moe-2b"],
    )
    workload_variable(
        "keys",
        default="execution.backend=cuda run.steps=120",
        description="Overrides of the deck",
        workloads=["hybrid-moe-2b"],
    )
    workload_variable(
        "published",
        default="0",
        description="tokens/s to hold it against; 0: none",
        workloads=["hybrid-moe-2b"],
    )
