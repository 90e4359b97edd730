"""A training command that trains nothing: it reads the real flags and writes real records.

By its seed: 13 fails, 14 ends well without a record, all others finish. FAKE_SECONDS is an epoch's
length; each start is noted in the file FAKE_TRACE.
"""

import os
import sys
import time
from dataclasses import replace

import numpy as np

from parity.launch import parse
from parity.runs import Epoch, RunRecord, encode_losses, sole_writer, write_record

MARKS = {name: "0" * 64 for name in ("data", "stream", "initial_weights")}


def main() -> None:
    config, earlier = parse("torch", sys.argv[1:])
    out = config.out
    out.mkdir(parents=True, exist_ok=True)
    with sole_writer(out):
        epochs = earlier.epochs if earlier else ()
        with open(os.environ["FAKE_TRACE"], "a") as file:
            print(out.name, os.getpid(), len(epochs), config.threads, file=file)
        print("training, or so it says")
        if config.seed == 13:
            sys.exit("failed: thirteen")
        if config.seed == 14:
            sys.exit(0)
        environment = {"framework": "torch", "platform": config.device, "first_epoch": 1}
        record = RunRecord(config=config, environments=(environment,), fingerprints=MARKS, path=out)
        write_record(replace(record, epochs=epochs))
        for number in range(len(epochs) + 1, config.epochs + 1):
            time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
            epochs += (
                Epoch(
                    epoch=number,
                    train_loss=1.0,
                    train_accuracy=50.0,
                    test_loss=1.0,
                    test_accuracy=50.0,
                    weights_sha256="0" * 64,
                    train_seconds=1.0,
                    test_seconds=0.5,
                    step_losses=encode_losses(np.ones(1, np.float32)),
                ),
            )
            write_record(replace(record, epochs=epochs))
        write_record(replace(record, epochs=epochs, status="finished"))


if __name__ == "__main__":
    main()
