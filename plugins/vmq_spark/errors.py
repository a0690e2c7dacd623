"""What goes wrong with pipelines, in words for the person who runs them."""


class PipelineError(Exception):
    """A pipeline cannot be run as it was asked for; trying again changes nothing."""


class UnreadyError(Exception):
    """A pipeline cannot be run now; trying again may help."""
