"""The keyring: what it binds values to, which keys it takes, and what it never shows."""

import pickle
import subprocess
import sys
import traceback
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from progressor import InvalidRequest, KeyMissing, Undecryptable
from progressor.codecs import Keyring, ValuePlace
from progressor.codecs.envelope import MAGIC, NONCE, kid_of, opened
from progressor.codecs.xaes import Xaes

OLD, NEW = bytes(range(100, 132)), bytes(range(132, 164))
PLACE = ValuePlace("shop", "o1", "state")
KINDS = ("state", "args", "context", "response", "event")
ids = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=256)
places = st.builds(ValuePlace, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True), ids,
                   st.sampled_from(KINDS))  # fmt: skip


def ring(**options: Any) -> Keyring:
    return Keyring("k1", {"k1": OLD}, **options)


@pytest.mark.parametrize(
    ("key", "associated", "ciphertext"),
    [
        (b"\x01", b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03", b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_cipher_is_that_of_its_specification(key: bytes, associated: bytes, ciphertext: str) -> None:
    """The vectors of c2sp.org/XAES-256-GCM, for both values of the first bit of its subkey."""
    cipher, nonce = Xaes(key * 32), b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert cipher.encrypt(nonce, b"XAES-256-GCM", associated).hex() == ciphertext
    assert cipher.decrypt(nonce, bytes.fromhex(ciphertext), associated) == b"XAES-256-GCM"


@given(st.binary(), places)
def test_a_value_comes_back_in_its_place(value: bytes, place: ValuePlace) -> None:
    """Whatever it is, and whatever its process is called; never the same bytes twice."""
    sealed = ring().seal(value, place)
    assert ring().unseal(sealed, place) == value
    assert sealed != ring().seal(value, place)
    assert kid_of(sealed) == kid_of(sealed[:22]) == "k1"
    assert sealed.startswith(ring().active_prefix)


@given(places, places)
def test_a_value_does_not_decrypt_elsewhere(place: ValuePlace, other: ValuePlace) -> None:
    """Another namespace, process or kind is another place."""
    sealed = ring().seal(b"1", place)
    if place != other:
        with pytest.raises(Undecryptable):
            ring().unseal(sealed, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ValuePlace("a", "b/c", "state"), ValuePlace("a/b", "c", "state")),
        (ValuePlace("a", "bstate", "args"), ValuePlace("ab", "state", "args")),
        (ValuePlace("shop", "o1", "state"), ValuePlace("shop", "o1", "event")),
        (ValuePlace("shop", "", "args"), ValuePlace("shop2", "o1", "args")),
        (ValuePlace("shop", "", "args"), ValuePlace("shop", "o1", "context")),
    ],
)
def test_names_are_not_run_together(one: ValuePlace, other: ValuePlace) -> None:
    """Places whose names have the same characters in all are different places."""
    with pytest.raises(Undecryptable) as raised:
        ring().unseal(ring().seal(b"1", one), other)
    assert (raised.value.namespace, raised.value.process_id, raised.value.kind) == other
    assert not isinstance(raised.value, KeyMissing)


def test_args_of_a_bulk_are_those_of_any_process_of_the_namespace() -> None:
    """They are sealed before the processes are known, and say so themselves."""
    sealed = ring().seal(b"1", ValuePlace("shop", "", "args"))
    assert ring().unseal(sealed, ValuePlace("shop", "o1", "args")) == b"1"
    # What is bound to a process cannot be made to look as if it were not.
    bound = bytearray(ring().seal(b"1", ValuePlace("shop", "o1", "args")))
    bound[len(ring().active_prefix)] = sealed[len(ring().active_prefix)]
    with pytest.raises(Undecryptable):
        ring().unseal(bytes(bound), ValuePlace("shop", "o1", "args"))


@given(st.data())
def test_every_bit_counts(data: st.DataObject) -> None:
    """A flipped bit, or a byte that is missing or added, is found out; or it is a key that is missing."""
    sealed = bytearray(ring(plain="refuse").seal(b'{"plan": "pro"}', PLACE))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Undecryptable):
        ring(plain="refuse").unseal(bytes(sealed), PLACE)
    whole = ring().seal(b"1", PLACE)
    with pytest.raises(Undecryptable):
        ring(plain="refuse").unseal(whole[: data.draw(st.integers(0, len(whole) - 1))], PLACE)
    with pytest.raises(Undecryptable):
        ring().unseal(whole + b"\x00", PLACE)


@given(st.binary())
def test_garbage_is_refused_by_its_own_error(garbage: bytes) -> None:
    """Bytes that begin as an envelope does and are none raise nothing but Undecryptable."""
    with pytest.raises(Undecryptable):
        ring().unseal(MAGIC + garbage, PLACE)
    with pytest.raises(Undecryptable):
        ring().unseal(ring().active_prefix + garbage, PLACE)


def test_an_envelope_has_its_documented_form() -> None:
    """Magic, length and id of the key, algorithm, nonce, ciphertext with its tag."""
    sealed = ring().seal(b"1", PLACE)
    assert sealed[:9] == b"\x00prg1\x02k1\x01"
    assert len(sealed) == 9 + NONCE + 1 + 16
    assert opened(sealed).nonce == sealed[9:33]


def test_old_keys_read_and_the_active_one_writes() -> None:
    """A value stays readable for as long as its key is in the ring; without it the error names the key."""
    before = ring().seal(b"1", PLACE)
    both = Keyring("k2", {"k2": NEW, "k1": OLD})
    assert both.unseal(before, PLACE) == b"1"
    after = both.seal(b"1", PLACE)
    assert kid_of(after) == both.active == "k2"
    with pytest.raises(KeyMissing, match="state: the keyring has no key 'k2'") as raised:
        ring().unseal(after, PLACE)
    assert (raised.value.kid, raised.value.process_id) == ("k2", "o1")
    with pytest.raises(Undecryptable, match="another one here") as other:
        Keyring("k1", {"k1": NEW}).unseal(before, PLACE)
    assert not isinstance(other.value, KeyMissing)


def test_plain_values() -> None:
    """They are read, as tables are mixed after the change; or refused, where nobody may write rows so."""
    assert ring().unseal(b'{"a": 1}', PLACE) == b'{"a": 1}'
    with pytest.raises(Undecryptable, match="not encrypted") as raised:
        ring(plain="refuse").unseal(b'{"a": 1}', PLACE)
    assert raised.value.is_plain


def test_a_function_provides_keys() -> None:
    """It is asked once for each key that it has, and again for one that it lacked."""
    asked: list[str] = []
    keys = {"k1": OLD}

    def provide(kid: str) -> bytes | None:
        asked.append(kid)
        return keys.get(kid)

    provided = Keyring("k1", provide)
    sealed = Keyring("k2", {"k2": NEW}).seal(b"1", PLACE)
    for _ in range(2):
        assert provided.unseal(provided.seal(b"1", PLACE), PLACE) == b"1"
        with pytest.raises(KeyMissing):
            provided.unseal(sealed, PLACE)
    keys["k2"] = NEW
    assert provided.unseal(sealed, PLACE) == provided.unseal(sealed, PLACE) == b"1"
    assert asked == ["k1", "k2", "k2", "k2"]
    with pytest.raises(KeyMissing):
        Keyring("k1", keys.__getitem__).unseal(Keyring("k3", {"k3": NEW}).seal(b"1", PLACE), PLACE)


def test_a_function_that_fails_has_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises: the key is missing just now, and the text of the error is not logged."""

    def provide(kid: str) -> bytes:
        if kid == "k1":
            return OLD
        raise ConnectionError("https://user:password@vault")

    with pytest.raises(KeyMissing):
        Keyring("k1", provide).unseal(Keyring("k2", {"k2": NEW}).seal(b"1", PLACE), PLACE)
    assert "ConnectionError" in caplog.text
    assert "password" not in caplog.text
    with pytest.raises(InvalidRequest, match="active key"):
        Keyring("k3", provide)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("k1", {"k1": OLD[:31]}), "keys"),
        (("k1", {"k1": OLD + b"x"}), "keys"),
        (("k1", {"k1": OLD.hex()}), "keys"),
        (("k1", {"k1": OLD, "k2": b""}), "keys"),
        (("k1", {"k2": NEW}), "active"),
        (("k1", {}), "active"),
        (("k1", lambda kid: None), "active"),
        (("k1", lambda kid: b"short"), "keys"),
        (("", {"": OLD}), "active"),
        (("k" * 17, {"k" * 17: OLD}), "active"),
        (("k1", {"k1": OLD, "ü": NEW}), "keys"),
        (("k1", {"k1": OLD, "a:b": NEW}), "keys"),
        (("k1", None), "keys"),
        ((1, {"k1": OLD}), "active"),
        (("plain", {"plain": OLD}), "active"),
    ],
)
def test_keys_that_cannot_be_used(arguments: Any, field: str) -> None:
    """Each is refused when the ring is made, and never shown."""
    with pytest.raises(InvalidRequest) as raised:
        Keyring(*arguments)
    assert raised.value.field == field
    assert OLD.hex()[:20] not in str(raised.value)


def test_plain_is_one_of_two_words() -> None:
    """Anything else is refused, as True would be."""
    with pytest.raises(InvalidRequest, match="plain must be"):
        ring(plain=True)


def test_a_ring_may_read_before_it_writes() -> None:
    """Without an active key it decrypts, and encrypts nothing: it goes to all readers before the first."""
    ready = Keyring(None, {"k1": OLD})
    assert ready.seal(b"1", PLACE) == ready.unseal(b"1", PLACE) == b"1"
    assert ready.unseal(ring().seal(b"2", PLACE), PLACE) == b"2"
    assert (ready.active, ready.active_prefix) == (None, None)
    with pytest.raises(InvalidRequest, match="must read plain"):
        Keyring(None, {"k1": OLD}, plain="refuse")


def text(**keys: bytes) -> str:
    return ",".join(f"{kid}:{b64encode(key).decode()}" for kid, key in keys.items())


def test_a_ring_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key is the active one."""
    monkeypatch.setenv("PROGRESSOR_KEYS", text(k2=NEW, k1=OLD))
    made = Keyring.from_env()
    assert made.active == "k2"
    assert made.unseal(ring().seal(b"1", PLACE), PLACE) == b"1"
    monkeypatch.setenv("PROGRESSOR_KEYS", f"plain,{text(k1=OLD)}")
    assert Keyring.from_env().active is None
    monkeypatch.setenv("SHOP_KEYS", text(k1=OLD))
    with pytest.raises(Undecryptable):
        Keyring.from_env("SHOP_KEYS", plain="refuse").unseal(b"1", PLACE)


SECRET = "c2VjcmV0c2VjcmV0c2VjcmV0"


@pytest.mark.parametrize(
    "given",
    ["", " \n", SECRET, f"k1:{SECRET}", f"k1:{SECRET}!", f"k1:{text(x=OLD)},k1:{SECRET}", f":{SECRET}",
     f"{SECRET}:{SECRET}"],
)  # fmt: skip
def test_a_variable_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """Its name is in the error, and nothing of what it holds."""
    monkeypatch.setenv("SHOP_KEYS", given)
    with pytest.raises(InvalidRequest) as raised:
        Keyring.from_env("SHOP_KEYS")
    shown = "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown
    assert raised.value.field in ("SHOP_KEYS", "keys")


def test_a_ring_of_a_file(tmp_path: Path) -> None:
    """One key a line, with comments; only its owner may write it, and others not even read it."""
    path = tmp_path / "keys"
    path.write_text(f"# rotated in May\n{text(k2=NEW)}  # active\n\n{text(k1=OLD)}\n")
    for mode in (0o600, 0o400, 0o640, 0o440):
        path.chmod(mode)
        assert Keyring.from_file(path).active == "k2"
    for mode in (0o644, 0o604, 0o660, 0o601):
        path.chmod(mode)
        with pytest.raises(InvalidRequest, match="chmod 600"):
            Keyring.from_file(path)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Keyring.from_file(tmp_path / "none")
    with pytest.raises(InvalidRequest, match=r"cannot be read|not a file"):
        Keyring.from_file(tmp_path)
    path.write_text(f"{text(k2=NEW)}\n{'#' * 65536}\n{text(k1=OLD)}")
    path.chmod(0o600)
    with pytest.raises(InvalidRequest, match="larger than"):
        Keyring.from_file(path)
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(InvalidRequest, match="no text"):
        Keyring.from_file(path)


def test_keys_are_not_shown() -> None:
    """Not by a ring, by what it holds, by an error with its locals, nor by pickle."""
    made = ring()
    shown = [repr(made), str(made), repr([getattr(made, each) for each in Keyring.__slots__])]
    with pytest.raises(Undecryptable) as raised:
        made.unseal(made.seal(b"secret text", PLACE), PLACE._replace(process_id="o2"))
    report = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    shown += ["".join(report.format()), repr(vars(raised.value)), str(raised.value)]
    for each in shown:
        assert OLD.hex() not in each
        assert repr(OLD)[2:-1] not in each
    assert "secret text" not in str(raised.value)
    assert raised.value.__cause__ is None
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(made)


def test_without_cryptography_it_says_what_is_missing() -> None:
    """The extra; codecs of users need none of it."""
    without = "import sys; sys.modules['cryptography'] = None; from progressor.codecs import PlacedCodec, "
    told = subprocess.run(
        [sys.executable, "-c", f"{without} Keyring"], check=False, stderr=subprocess.PIPE, text=True
    )
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].startswith("ImportError: Keyring needs the extra `crypto`")
    subprocess.run([sys.executable, "-c", f"{without} Codec"], check=True)
