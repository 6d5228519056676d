"""XAES-256-GCM (https://c2sp.org/XAES-256-GCM): AES-256-GCM with a key of its own for each value.

AES-256-GCM with one key and random nonces of 96 bits is good for 2^32 values (NIST SP 800-38D, 8.3): a busy
system writes so many in days. Here the first half of a nonce of 192 bits derives a key (NIST SP 800-108,
CMAC), and the second half is the nonce of AES-256-GCM under it. So there is no number of values to watch,
no counter that a fork, a restored image or a second worker could repeat, no derived key to keep in a cache.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY: Final = 32
_HALF, _BLOCK = 12, 16
_BITS = 8 * _BLOCK


class Xaes:
    """The cipher of one key. It keeps no state, and may be used by any number of threads."""

    __slots__ = ("_cipher", "_mask")

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305  # CMAC of single blocks
        subkey = int.from_bytes(self._cipher.encryptor().update(bytes(_BLOCK)), "big") << 1
        if subkey >> _BITS:
            subkey ^= 1 << _BITS | 0x87
        first, second = (
            subkey ^ int.from_bytes(bytes((0, counter, ord("X"), 0)) + bytes(_HALF), "big")
            for counter in (1, 2)
        )
        self._mask = first << _BITS | second

    def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
        """Return the ciphertext with its tag."""
        return self._derived(nonce).encrypt(nonce[_HALF:], data, associated)

    def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes | None:
        """Return the plaintext; None if anything is not as it was encrypted."""
        try:
            return self._derived(nonce).decrypt(nonce[_HALF:], data, associated)
        except InvalidTag:
            return None

    def _derived(self, nonce: bytes) -> AESGCM:
        half = int.from_bytes(nonce[:_HALF], "big")
        blocks = (self._mask ^ (half << _BITS | half)).to_bytes(2 * _BLOCK, "big")
        return AESGCM(self._cipher.encryptor().update(blocks))
