"""Why a broker cannot start."""


class StartError(RuntimeError):
    """The broker cannot start; the text is for the operator."""
