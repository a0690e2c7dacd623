"""What goes wrong between Spark and vmq, told in the words of the person who typed the options."""


class VmqError(Exception):
    """The base of all errors of this package."""


class OptionError(VmqError, ValueError):
    """An option is missing, or its value is not accepted. Names the option and what is accepted."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option
        self.problem = problem

    def __str__(self) -> str:
        return f"vmq: option '{self.option}': {self.problem}"


class DataLossError(VmqError):
    """Offsets that the query needs are not in the stream any more."""

    #: What to say behind it.
    ADVICE = (
        ". Messages were lost to the query, by retention or because the stream was made anew. "
        "To go on with what is there set option 'failOnDataLoss' to false"
    )


class RecreatedError(DataLossError):
    """The stream that the query has read was deleted, and another one has its name."""


class ServerError(VmqError):
    """The broker refused, or cannot be reached."""

    #: What the broker says to programs; empty = nothing.
    code = ""


class Unavailable(ServerError):  # noqa: N818 - a state more than an error: it may pass
    """The broker cannot be reached now."""


class UnderWayError(ServerError):
    """The broker is publishing the batch: it is to be asked again."""


class Unauthenticated(ServerError):  # noqa: N818 - may pass with a new token
    """The broker does not accept the credentials, or not any more."""


class Elsewhere(ServerError):  # noqa: N818 - says where to ask instead
    """Another node of the broker's cluster has the partition."""

    def __init__(self, text: str, location: str) -> None:
        super().__init__(text)
        self.location = location
