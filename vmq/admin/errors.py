"""Why an operation of the operator was not done."""


class AdminError(Exception):
    """The request makes no sense; the text says what would."""

    status = 400


class NotFoundError(AdminError):
    """There is no such thing."""

    status = 404


class RefusedError(AdminError):
    """The thing is there, but in no state for this."""

    status = 409


def refused(reason: Exception) -> RefusedError:
    """What jobs refused, without the word that begins an error of no kind of its own over RESP."""
    return RefusedError(str(reason).removeprefix("ERR "))


class TooSlow(AdminError):
    """A request did not come in time."""

    status = 408


class NotAuthenticatedError(AdminError):
    """A plugin does not let the user in."""

    status = 401


class ForbiddenError(AdminError):
    """A plugin does not allow it."""

    status = 403


class UnavailableError(AdminError):
    """Nobody could decide or do it now."""

    status = 503
