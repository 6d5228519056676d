"""Codecs: what stands between JSON and the tables. `Keyring` encrypts; it needs the extra `crypto`."""

from typing import TYPE_CHECKING

from progressor.exports import exports

if TYPE_CHECKING:
    from progressor.codecs.codec import (
        Codec as Codec,
        PlacedCodec as PlacedCodec,
        RotatingCodec as RotatingCodec,
        ValuePlace as ValuePlace,
    )
    from progressor.codecs.keyring import Keyring as Keyring
else:
    __all__, __getattr__, __dir__ = exports(
        __name__, {"codec": "Codec PlacedCodec RotatingCodec ValuePlace", "keyring": "Keyring"}
    )
