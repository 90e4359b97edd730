"""How every command ends early: one clear message, an exit status, never a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from parity.errors import RunFailed, UserError


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn UserError into exit status 2 and RunFailed into 1, with the message alone on stderr."""
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except RunFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader (head, less) has gone; nobody is left to tell.
        sys.stderr.close()
        sys.exit(0)
