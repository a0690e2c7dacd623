"""The operations of the API: routes, checks of parameters and the OpenAPI description come out of them."""

from typing import Final

from vmq.http.operations.access import ACCESS_OPERATIONS
from vmq.http.operations.groups import GROUP_OPERATIONS
from vmq.http.operations.jobs import JOB_OPERATIONS
from vmq.http.operations.nodes import NODE_OPERATIONS
from vmq.http.operations.options import OPTION_OPERATIONS
from vmq.http.operations.plugins import PLUGIN_OPERATIONS
from vmq.http.operations.sessions import SESSION_OPERATIONS
from vmq.http.operations.streams import STREAM_OPERATIONS
from vmq.http.operations.why import WHY_OPERATIONS
from vmq.http.publishing import PUBLISH

OPERATIONS: Final = (
    *SESSION_OPERATIONS,
    *ACCESS_OPERATIONS,
    *NODE_OPERATIONS,
    *PLUGIN_OPERATIONS,
    *STREAM_OPERATIONS,
    *OPTION_OPERATIONS,
    *WHY_OPERATIONS,
    PUBLISH,
    *JOB_OPERATIONS,
    *GROUP_OPERATIONS,
)
