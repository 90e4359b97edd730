"""How every command ends early: one clear message, an exit status, never a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parity.errors import RunFailed, UserError


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn UserError into exit status 2 and RunFailed into 1, with the message alone on stderr.

    A framework that is not installed is the user's to put right, too.
    """
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except RunFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        print(
            f"error: {error.name} is not installed. Run `pip install '.[all]'` in the project's "
            "folder, or only the extra that brings it: see the README.",
            file=sys.stderr,
        )
        sys.exit(2)
    except BrokenPipeError:
        # The reader (head, less) has gone; nobody is left to tell.
        sys.stderr.close()
        sys.exit(0)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which path it is that cannot be written.

    Raises:
        UserError: If the system refuses, for a full disk or a missing folder.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}). "
            "Make room there, or choose another place."
        ) from error
