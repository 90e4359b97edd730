"""The two ways in which a command ends early: the user's mistake and a run that failed."""


class UserError(ValueError):
    """Something that the user can put right; the message says what, why and what to do.

    A command prints the message alone and exits with status 2.
    """


class RunFailed(Exception):
    """A run that cannot go on (NaN, a full disk); the message says where and what is kept.

    A command prints the message alone and exits with status 1.
    """
