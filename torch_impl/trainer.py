"""The training step, evaluation and state of SimpleCNN in PyTorch."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parity import arithmetic
from parity.config import EngineName, TrainConfig
from parity.data.dataset import Dataset
from parity.data.draws import Draws
from parity.data.pipeline import Batch, lookup_table
from parity.errors import UserError
from parity.optimizers import STEP
from parity.platforms import Platform, nvidia_driver
from parity.trainer import NonFinite, Output
from torch_impl import engines, graph, ops, resident, self_test
from torch_impl.engines import ENGINES
from torch_impl.graph import CapturedGradients
from torch_impl.loss_scaling import LossScaler
from torch_impl.model import SimpleCNN
from torch_impl.optim import load_slots, make_optimizer, slots
from torch_impl.precision import autocast, precision_in_force, product_bits, set_precision
from torch_impl.resident import Images
from torch_impl.weights import from_canonical, to_canonical


def select_device(platform: Platform) -> torch.device:
    """Return PyTorch's device of a platform.

    Raises:
        UserError: If there is none here; says which devices are, and what to install.
    """
    available = ["cpu", *(f"gpu:{index}" for index in range(torch.cuda.device_count()))]
    available += ["mps"] if torch.backends.mps.is_available() else []
    match platform.kind:
        case "cpu":
            return torch.device("cpu")
        case "gpu" if platform.name in available:
            return torch.device("cuda", platform.index)
        case "mps" if "mps" in available:
            return torch.device("mps")
        case "xla":
            try:
                import torch_xla  # pyright: ignore[reportMissingImports]
            except ImportError:
                remedy = "Install torch_xla, for a TPU with `pip install 'torch_xla[tpu]'`"
            else:
                return torch_xla.device()
        case "gpu":
            remedy = "Choose another index"
            if torch.version.cuda is None:
                remedy = "Install a CUDA build of PyTorch"
            elif not torch.cuda.is_available():
                remedy = "Install an NVIDIA GPU with its driver"
        case _:
            remedy = "It needs a Mac with Apple silicon"
    raise UserError(
        f"PyTorch sees no {platform.name} on this machine, only {', '.join(available)}. "
        f"{remedy}, or choose one of these."
    )


def capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of an NVIDIA GPU; None of any other device."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


class Trainer:
    """One SimpleCNN with its optimizer, on one device. See parity.trainer.Trainer."""

    def __init__(self, config: TrainConfig, platform: Platform, threads: int) -> None:
        torch.set_num_threads(threads)
        deterministic: Any = torch.utils.deterministic  # its type stubs lack some attributes
        set_precision(config.arithmetic)
        torch.use_deterministic_algorithms(config.deterministic)
        # Else every new tensor is filled with NaN first, a sixth of the time of a step.
        deterministic.fill_uninitialized_memory = False
        torch.backends.cudnn.benchmark = config.autotune
        self._config = config
        self._device = select_device(platform)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # whose streams a graph is captured from
        self._dtype = getattr(torch, config.dtype)
        exact = config.exact_operations
        known = arithmetic.this_machines(platform, capability(self._device))
        if (reason := arithmetic.why_not("torch", known, config.to_json())) is not None:
            raise UserError(reason)
        self._amp = getattr(torch, config.amp) if config.amp else None
        self._scaler = LossScaler(self._device) if config.amp == "float16" else None
        self._engine: EngineName | None = None
        if "dot" in exact:
            self._engine = config.engine or engines.choose(self._device)
        engine = ENGINES[self._engine or "float64"]
        if exact:
            self_test.check(self._device, engine)
        self._cross_entropy = ops.CrossEntropy.apply if "softmax" in exact else F.cross_entropy
        bits = arithmetic.EMULATED.get(config.arithmetic)
        self._model = SimpleCNN(self._dtype, exact, engine, operand_bits=bits).to(self._device)
        self._optimizer = make_optimizer(
            config.optimizer, config.lr, self._model, exact="optimizer" in exact
        )
        # Exact operations and a GradScaler look at values on the host.
        self._captures = self._device.type == "cuda" and not exact and self._scaler is None
        self._captured: dict[int, CapturedGradients] = {}
        self._num_steps = 0
        self.holds_images = self._device.type == "cuda"
        self._train_images: Images | None = None
        self._test_images: Images | None = None

    def environment(self) -> dict[str, Any]:
        """Return what the framework says of itself and its device, read back, as JSON values."""
        on_gpu = self._device.type == "cuda"
        return {
            "framework": "torch",
            "device": torch.cuda.get_device_name(self._device) if on_gpu else str(self._device),
            "capability": ".".join(map(str, capability(self._device) or ())) or None,
            "driver": nvidia_driver() if on_gpu else None,
            "cuda": torch.version.cuda if on_gpu else None,
            "cudnn": torch.backends.cudnn.version() if on_gpu else None,
            "instruction_set": torch.backends.cpu.get_cpu_capability(),
            "threads_in_force": torch.get_num_threads(),
            "precision": precision_in_force(),
            "product_bits": product_bits(self._model, self._amp, self._device)
            if "dot" not in self._config.exact_operations
            else None,
            "amp": self._config.amp,
            "engine": self._engine,
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over weights, buffers and optimizer state by canonical name."""
        from_canonical(self._model, state)
        load_slots(self._config.optimizer, self._optimizer, self._model, state)
        if self._scaler is not None:
            self._scaler.load(state)
        self._num_steps = int(state[STEP])

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of weights, buffers and optimizer state by canonical name."""
        return {
            **to_canonical(self._model.state_dict()),
            **slots(self._config.optimizer, self._optimizer, self._model),
            **(self._scaler.state() if self._scaler is not None else {}),
            STEP: np.array(self._num_steps, np.int64),
        }

    def _tensors(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        images = self._planes(torch.from_numpy(batch.images).to(self._device))
        labels = torch.from_numpy(batch.labels).to(self._device, torch.int64)
        keep = None if batch.keep is None else torch.from_numpy(batch.keep).to(self._device)
        return images, labels, keep

    def _planes(self, images: Tensor) -> Tensor:
        """Return (n, H, W, C) as (n, C, H, W) in the run's precision."""
        # Contiguous: in the channels-last format PyTorch's BatchNorm on CPU sums float32 one after
        # the other and loses two digits (5e-6 against 4e-8 on 128 x 32 x 32, torch 2.14.1).
        return images.to(self._dtype).permute(0, 3, 1, 2).contiguous()

    def _forward(
        self, images: Tensor, labels: Tensor, keep: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return loss and logits."""
        with autocast(self._device, self._amp):
            logits = self._model(images, keep)
            return self._cross_entropy(logits, labels), logits

    def _backward(self, loss: Tensor) -> bool:
        """Do the update and return whether it was done: not if a scaled gradient is infinite."""
        self._optimizer.zero_grad()
        if self._scaler is not None:
            return self._scaler.update(loss, self._optimizer)
        loss.backward()
        self._optimizer.step()
        return True

    def _gradients(self, draw: Draws) -> tuple[Tensor, Tensor]:
        """See graph.Gradients."""
        loss, logits = self._forward_on_device(draw)
        self._optimizer.zero_grad()
        loss.backward()
        return loss.detach(), logits.detach().to(self._dtype)

    def _forward_on_device(self, draw: Draws) -> tuple[Tensor, Tensor]:
        assert self._train_images is not None
        pixels, labels, keep = resident.batch(self._train_images, draw)
        return self._forward(self._planes(pixels), labels, keep)

    def _update(self, draw: Draws) -> tuple[Tensor, Tensor]:
        """Do the update of a step whose images lie on the device; return loss and logits."""
        captured = self._captured.get(len(draw.chosen))
        if captured is not None:
            loss, logits = captured(draw)
            self._optimizer.step()
            self._num_steps += 1
            return loss, logits
        loss, logits = self._forward_on_device(draw)
        self._num_steps += self._backward(loss)
        return loss.detach(), logits.detach().to(self._dtype)

    def train_step(self, batch: Batch) -> Output:
        """Do one update and return the loss and the logits that it was made from.

        Raises:
            NonFinite: If the loss is NaN or infinite; the parameters were not updated. A gradient
                of a scaled loss may be so: then the update is left out, and the scale halved.
        """
        images, labels, keep = self._tensors(batch)
        self._model.train()
        loss, logits = self._forward(images, labels, keep)
        if not torch.isfinite(loss):
            raise NonFinite(self._first_nonfinite(images, keep))
        self._num_steps += self._backward(loss)
        logits = logits.detach().to(self._dtype)
        return Output(loss.detach().cpu().numpy(), logits.cpu().numpy())

    @torch.no_grad()
    def test_step(self, batch: Batch) -> Output:
        """Return loss and logits with running statistics and without dropout."""
        images, labels, keep = self._tensors(batch)
        self._model.eval()
        logits = self._model(images, keep)
        loss = self._cross_entropy(logits, labels)
        return Output(loss.cpu().numpy(), logits.cpu().numpy())

    def place(self, dataset: Dataset) -> None:
        """Lay the images on the device, for `train_steps` and `test_steps`."""
        self._captured = {}  # which read the images before
        table, to = lookup_table(dataset), self._device
        self._train_images = resident.place(dataset.train_images, dataset.train_labels, table, to)
        self._test_images = resident.place(dataset.test_images, dataset.test_labels, table, to)

    def train_steps(self, draws: Draws) -> Output:
        """Do an update for each step; a loss that is NaN or infinite stops none of them."""
        self._model.train()
        steps = resident.steps(draws, self._device)
        num_steps, size = draws.chosen.shape
        outputs = []
        if self._captures and size not in self._captured and num_steps > graph.WARM_UP:
            with graph.warming_up():
                outputs += map(self._update, islice(steps, graph.WARM_UP))
            params, like = self._model.parameters(), next(resident.steps(draws, self._device))
            self._captured[size] = graph.CapturedGradients(self._gradients, params, like)
        outputs += map(self._update, steps)
        return _on_host(*zip(*outputs, strict=True))

    @torch.no_grad()
    def test_steps(self, draws: Draws) -> Output:
        """Return loss and logits of each step with running statistics and without dropout."""
        assert self._test_images is not None
        self._model.eval()
        losses, logits = [], []
        for draw in resident.steps(draws, self._device):
            pixels, labels, keep = resident.batch(self._test_images, draw)
            logits.append(self._model(self._planes(pixels), keep))
            losses.append(self._cross_entropy(logits[-1], labels))
        return _on_host(losses, logits)

    @torch.no_grad()
    def _first_nonfinite(self, images: Tensor, keep: Tensor | None) -> str:
        for name, parameter in self._model.named_parameters():
            if not parameter.isfinite().all():
                return name
        with autocast(self._device, self._amp):
            return self._first_stage(images, keep)

    def _first_stage(self, images: Tensor, keep: Tensor | None) -> str:
        x = images
        for name, stage in self._model.stages(keep).items():
            x = stage(x)
            if not x.isfinite().all():
                return f"output of {name}"
        return "loss"


def _on_host(losses: Iterable[Tensor], logits: Iterable[Tensor]) -> Output:
    """Return what the steps yield together, which waits for the device, once."""
    return Output(*(torch.stack(list(t)).cpu().numpy() for t in (losses, logits)))
