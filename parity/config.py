"""TrainConfig: one training run, as both implementations read it."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from parity.arithmetic import AMP, PRESETS, Arithmetic, PresetName, preset_of
from parity.errors import UserError
from parity.exact.operations import OPERATIONS

DatasetName = Literal["cifar10", "digits"]
DataSource = Literal["tfds", "torchvision", "binary"]
OptimizerName = Literal["adam", "rmsprop", "sgd"]
PipelineName = Literal["own", "article"]
EngineName = Literal["float64", "int8"]

FLOAT32_NORMAL = (2.0**-126, 2.0**128 - 2.0**104)
"""The smallest and the largest positive normal number. Source: IEEE 754."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run of SimpleCNN. The defaults are the article's."""

    device: str = "cpu"
    """cpu, cpu:sse4, cpu:avx2, cpu:avx512, gpu (or cuda), gpu:1, tpu; PyTorch also mps, xla."""

    threads: int | None = None
    """CPU threads of the framework. Default: as many as this process has cores."""

    dataset: DatasetName = "cifar10"
    """cifar10, or digits: scikit-learn's 1,797 handwritten digits, which need no download."""

    data_dir: Path | None = None
    """Folder of CIFAR-10. Default: the folder that the data source uses by itself."""

    data_source: DataSource | None = None
    """Reader of CIFAR-10. Default: binary if DATA_DIR holds cifar-10-batches-bin, else tfds (JAX)
    or torchvision (PyTorch)."""

    train_size: int | None = None
    """Train on so many images, chosen by the seed. Default: all."""

    test_size: int | None = None
    """Test on so many images, chosen by the seed. Default: all."""

    optimizer: OptimizerName = "adam"
    """With PyTorch's semantics; sgd has momentum 0.9."""

    lr: float = 1e-3
    """Learning rate, constant."""

    batch_size: int = 128
    """Images a step; the last batch of an epoch holds what is left."""

    epochs: int = 10
    """Passes over the training images."""

    seed: int = 42
    """Seeds initial weights, subsets, batch order, crops, flips and dropout masks."""

    arithmetic: Arithmetic = "float32"
    """float32 is IEEE float32 in every product: no TF32, no bfloat16. exact: float32 values, with
    equal bits in both frameworks, on any CPU or GPU, with any number of threads. tf32 and bf16:
    products of operands so rounded, by the device. amp-: mixed precision in training. emulate-:
    operands rounded by us, on any device."""

    engine: EngineName | None = None
    """What multiplies in the exact arithmetic; the bits are equal. Default: the faster one here."""

    exact_only: tuple[str, ...] = ()
    """With float32: make only these operations exact, to learn which one brings a difference. Of
    dot, batchnorm, selection, softmax, optimizer, joined by commas."""

    autotune: bool = False
    """Let cuDNN, or XLA on GPUs, time kernels and take the fastest."""

    deterministic: bool = True
    """Allow only kernels that give the same bits in every run."""

    workers: int = 0
    """Threads that prepare batches; 0: one that runs ahead. With our own streams they change
    nothing but the speed."""

    pipeline: PipelineName = "own"
    """article: torchvision's transforms in a DataLoader, PyTorch's generators and initial weights.
    There workers are processes, and do change the random stream. PyTorch only, no --resume."""

    replicas: int = 1
    """Train so many runs in one program, of the seeds from SEED on, each with a record of its own
    in OUT/replica-seedN. JAX on a GPU or TPU only, no --resume."""

    preset: PresetName | None = None
    """What the article calls so: sets arithmetic, workers, autotune and deterministic."""

    init_weights: Path | None = None
    """Start from this canonical safetensors file instead of the seed's weights."""

    out: Path | None = None
    """Folder of the run's record. Default: a new one in runs/."""

    resume: Path | None = None
    """Go on with this run, begun in either framework, from its last finished epoch."""

    quiet: bool = False
    """Print nothing but errors."""

    def __post_init__(self) -> None:
        for name, minimum in (
            ("threads", 1),
            ("train_size", 1),
            ("test_size", 1),
            ("batch_size", 1),
            ("epochs", 1),
            ("seed", 0),
            ("workers", 0),
            ("replicas", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(
                    f"--{name.replace('_', '-')} is {value}, but must be at least {minimum}."
                )
        for name, choices in (
            ("dataset", get_args(DatasetName)),
            ("data_source", (None, *get_args(DataSource))),
            ("optimizer", get_args(OptimizerName)),
            ("arithmetic", get_args(Arithmetic)),
            ("engine", (None, *get_args(EngineName))),
            ("preset", (None, *PRESETS)),
            ("pipeline", get_args(PipelineName)),
        ):
            if getattr(self, name) not in choices:
                raise UserError(f"{name} {getattr(self, name)!r} is none of {choices}.")
        self._check_exact_only()
        self._check_preset()
        if self.engine is not None and "dot" not in self.exact_operations:
            raise UserError(
                f"--engine {self.engine} computes exact products, and this run has none. "
                "Leave it out, or ask for --arithmetic exact."
            )
        if self.seed >= 2**63:
            raise UserError(f"--seed is {self.seed}, but must be below 2**63.")
        if not 0 < self.lr < float("inf"):
            raise UserError(f"--lr is {self.lr}, but must be a positive finite number.")
        low, high = FLOAT32_NORMAL
        if self.dtype == "float32" and not low <= self.lr <= high:
            raise UserError(
                f"--lr is {self.lr}, which float32 cannot hold: it ranges from {low:.3g} to "
                f"{high:.3g}. Choose another, or --arithmetic float64."
            )

    def _check_exact_only(self) -> None:
        names = self.exact_only
        for name in names:
            if name not in OPERATIONS:
                raise UserError(
                    f"--exact-only {name!r} is no operation. Choose from {', '.join(OPERATIONS)}, "
                    "joined by commas."
                )
        if names and self.arithmetic != "float32":
            raise UserError(
                f"--exact-only makes some operations of float32 exact, and --arithmetic is "
                f"{self.arithmetic}. Leave out one of the two."
            )
        # It is a set: neither order nor repetition makes another run.
        object.__setattr__(self, "exact_only", tuple(n for n in OPERATIONS if n in names))

    def _check_preset(self) -> None:
        for name, value in PRESETS[self.preset].items() if self.preset else ():
            if getattr(self, name) != value:
                raise UserError(
                    f"--preset {self.preset} has {_flag(name, value)}, and "
                    f"{_flag(name, getattr(self, name))} contradicts it. Leave out one of the two."
                )

    @property
    def exact_operations(self) -> frozenset[str]:
        """The operations that are exact: all, those of `exact_only`, or none."""
        return frozenset(OPERATIONS if self.arithmetic == "exact" else self.exact_only)

    @property
    def needs_float64(self) -> bool:
        """Whether the device must have IEEE float64."""
        return self.arithmetic == "float64" or bool(self.exact_operations)

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """The type of weights, buffers and losses."""
        return "float64" if self.arithmetic == "float64" else "float32"

    @property
    def amp(self) -> Literal["bfloat16", "float16"] | None:
        """The low precision of mixed-precision training, or None."""
        return AMP.get(self.arithmetic)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values.

        Without those that concern one process only (a replica is a run like any other), and without
        the preset, which the settings that it stands for say already.
        """
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }
        for name in ("resume", "quiet", "replicas", "preset"):
            del values[name]
        return values | {"exact_only": list(self.exact_only)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainConfig":
        """Return the configuration that `to_json` wrote; a preset gives what is missing.

        Raises:
            UserError: If a field is unknown, that is written by a newer version.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UserError(
                f"The configuration has fields that this version does not know: "
                f"{', '.join(unknown)}. Read it with the version that wrote it, or a newer one."
            )
        paths = ("data_dir", "init_weights", "out")
        typed: dict[str, Any] = {
            name: Path(value) if name in paths and value is not None else value
            for name, value in values.items()
        }
        typed = preset_of(typed) | typed
        if "exact_only" in typed:
            typed["exact_only"] = tuple(typed["exact_only"])
        return cls(**typed)


def _flag(name: str, value: Any) -> str:
    """Return a setting as it is typed."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
