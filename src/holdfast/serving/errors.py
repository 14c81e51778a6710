"""Why a request got no answer; each says what to do, and nothing of the stream has changed."""

from __future__ import annotations


class ServingError(Exception):
    """`status`: what an HTTP server answers with."""

    status = 500


class BadRequestError(ServingError):
    """What was sent cannot be right, however often it is sent."""

    status = 400


class UnknownStreamError(ServingError):
    status = 404


class ConflictError(ServingError):
    """The stream's state does not allow it: damaged, of another model, or served elsewhere."""

    status = 409


class TooLargeError(ServingError):
    status = 413


class BusyError(ServingError):
    """Too much waits already, or too many streams are there. `after`: seconds to wait."""

    status = 429

    def __init__(self, message: str, after: float = 1.0):
        super().__init__(message)
        self.after = after


class NotOfferedError(ServingError):
    """What this kind of server cannot do."""

    status = 501


class StoppingError(ServingError):
    """The server is on its way out and takes nothing more."""

    status = 503


class DiskError(ServingError):
    """A state could not be read or written."""

    status = 507
