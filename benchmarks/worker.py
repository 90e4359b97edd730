"""One case of a benchmark in its own process: it does a step when asked, and says how long it took.

    python -m benchmarks.worker '{"framework": "torch", "config": {"arithmetic": "exact"}}'

reads a line, does a training step, writes its wall time in milliseconds, and so on: whoever starts
several of these interleaves them. The first line it writes is JSON: what the case runs on.
"""

import importlib
import json
import sys
import time

from parity import platforms
from parity.architecture import initial_weights
from parity.config import TrainConfig
from parity.data import digits
from parity.data.pipeline import train_batches
from parity.optimizers import initial_state


def main(framework: platforms.Framework, values: dict[str, object], *, tf32: bool) -> None:
    """Serve steps of one training run on digits, whose images have CIFAR-10's size.

    Args:
        framework: jax or torch.
        values: Of the configuration.
        tf32: Let products be rounded to TF32, as the frameworks offer it.
    """
    config = TrainConfig.from_json({"dataset": "digits", **values})
    threads = config.threads or platforms.available_threads()
    trainer = importlib.import_module(f"{framework}_impl.trainer").Trainer(
        config, platforms.parse(config.device, framework), threads
    )
    if tf32:
        allow_tf32(framework)
    first = initial_weights(config.seed)
    trainer.load(first | initial_state(config.optimizer, first))
    size = config.batch_size
    batch = next(train_batches(digits.load(), seed=config.seed, epoch=1, batch_size=size))
    for _ in range(3):  # compiles, fills caches
        trainer.train_step(batch)
    print(json.dumps(trainer.environment()), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        trainer.train_step(batch)  # returns when the loss is on the host
        print(1e3 * (time.perf_counter() - begin), flush=True)


def allow_tf32(framework: platforms.Framework) -> None:
    """Let the framework round the operands of float32 products to 11 bits where it can."""
    module = importlib.import_module(framework)
    if framework == "torch":
        module.backends.fp32_precision = "tf32"
    else:
        module.config.update("jax_default_matmul_precision", "tensorfloat32")


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    main(request["framework"], request["config"], tf32=request.get("tf32", False))
