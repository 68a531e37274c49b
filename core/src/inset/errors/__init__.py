"""Every exception that Inset raises on purpose.

Leaf = cause, branch = whose fault it is and what a caller can do about it::

    InsetError
    ├── ClientError                      the caller can mend it
    │   ├── InvalidRequestError      400 malformed request, unknown part or option
    │   │   ├── PromptTooLongError   400 more tokens than the context holds
    │   │   ├── ItemLimitError       400 more items than a prompt may have
    │   │   ├── ItemTooLargeError    400 more embeds than the encoder cache holds
    │   │   ├── PlaceholderError     400 placeholders in the prompt and items differ
    │   │   ├── MediaPolicyError     400 a host, scheme, address or path that is not allowed
    │   │   └── UuidConflictError    400 a uuid that is bound to other bytes
    │   ├── AuthenticationError      401 no or wrong API key
    │   ├── ModelNotFoundError       404 a model that is not served here
    │   ├── MediaNotCachedError      409 a uuid without bytes that is not, or no longer, cached
    │   ├── TooLargeError            413 a body or media over a byte, pixel or decoded-size cap
    │   └── MediaError               422 media that cannot be had
    │       ├── MediaFetchError      422 not fetched
    │       │   ├── MediaTimeoutError 422 not fetched within the total deadline
    │       │   └── TransientFetchError 422 not fetched this time; the core tries again
    │       └── MediaDecodeError     422 fetched, but it is not media, or it is damaged
    ├── ServerError                      nothing the caller sent is wrong
    │   ├── OverloadedError          503 one of our own limits is reached; come again
    │   ├── EngineDeadError          503 the engine core is gone
    │   ├── EncoderError             500 an encoder failed on good input; that request alone is lost
    │   └── InvariantError           500 a mistake of ours
    ├── ConfigError                      an option, checkpoint or environment that cannot be served; raised at start-up
    │   └── MissingExtraError            an optional dependency is not installed
    └── PluginError                      raised while plugins are found and registered
        ├── PluginLoadError              a plugin could not be imported or is made for another version
        ├── PluginContractError          a plugin breaks the rules of a hook or registry
        ├── DuplicateNameError           two plugins claim one name
        └── UnknownNameError             a name that nothing provides

A message says what happened, with which item, and what to do. It never carries a URL's query or user-info, base64 data or a file path.

What the caller can mend is in `client`, what we could not serve in `server`, the two branches of a start that fails in `startup`.
"""

from inset.errors.base import InsetError
from inset.errors.client import (
    AuthenticationError,
    ClientError,
    InvalidRequestError,
    ItemLimitError,
    ItemTooLargeError,
    MediaDecodeError,
    MediaError,
    MediaFetchError,
    MediaNotCachedError,
    MediaPolicyError,
    MediaTimeoutError,
    ModelNotFoundError,
    PlaceholderError,
    PromptTooLongError,
    TooLargeError,
    TransientFetchError,
    UuidConflictError,
)
from inset.errors.server import EncoderError, EngineDeadError, InvariantError, OverloadedError, ServerError
from inset.errors.startup import (
    ConfigError,
    DuplicateNameError,
    MissingExtraError,
    PluginContractError,
    PluginError,
    PluginLoadError,
    UnknownNameError,
)

__all__ = [
    "AuthenticationError",
    "ClientError",
    "ConfigError",
    "DuplicateNameError",
    "EncoderError",
    "EngineDeadError",
    "InsetError",
    "InvalidRequestError",
    "InvariantError",
    "ItemLimitError",
    "ItemTooLargeError",
    "MediaDecodeError",
    "MediaError",
    "MediaFetchError",
    "MediaNotCachedError",
    "MediaPolicyError",
    "MediaTimeoutError",
    "MissingExtraError",
    "ModelNotFoundError",
    "OverloadedError",
    "PlaceholderError",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "PromptTooLongError",
    "ServerError",
    "TooLargeError",
    "TransientFetchError",
    "UnknownNameError",
    "UuidConflictError",
]
