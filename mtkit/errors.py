"""The one exception that is a message to the user."""


class MtkitError(Exception):
    """A mistake the user can mend, told in one line.

    The text names the file, line, option or key and says what to do.
    `cli` prints it and exits with `status`; every other exception is our bug and keeps its
    traceback.

    Attributes:
        status: exit status of the program.
        told: whether another process of this run has printed the same already.
    """

    status = 1
    told = False


class LostWorkerError(MtkitError):
    """A process that worked for this one ended, most often because memory ran out."""
