"""Redaction of secrets before anything is written to a file, as `[redacted: kind]`.

Three kinds are found: the values of keys and passwords that this process has (`know`), also in
base64, hex and URLs; keys with a recognizable public format; and values in places where secrets
are, such as after DB_PASSWORD=. Every rule starts with a fixed text, which is searched for first,
and looks at each character a bounded number of times: the time is linear in the text's length. The
public formats follow the rules of gitleaks (MIT, see docs/licences.md).
"""

import binascii
import json
import math
import re
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

import msgspec

from ragmem.text import Regex, clean, clip_middle

_PASSWORDS = (
    *("assword", "asswd", "assphrase", "asswort", "ennwort", "ot de passe"),
    *("ontraseña", r"ontrase\u00f1a"),
)
_KEYS = ("api", "access", "secret", "private", "auth", "encryption", "signing", "client")
_NAMES = {
    **dict.fromkeys(_PASSWORDS, ""),
    "pass": "(?<![A-Za-z]pass)",
    "pwd": "",
    "ecret": "",
    "oken": "",
    "redentials": "",
    "_key": "|".join(rf"(?<={word}_key)" for word in _KEYS),
    "-key": "|".join(rf"(?<={word}-key)" for word in _KEYS),
    " key": "|".join(rf"(?<={word} key)|(?<={word.title()} key)" for word in (*_KEYS, "API")),
    "pikey": "(?<=apikey)",
}
"""Ends of the names of secrets, without the letter whose case varies, and lookbehinds for them."""
_NAMES |= {name.upper(): _NAMES[name].upper() for name in tuple(_NAMES) if name != "pass"}
_NAMES |= {"PASS": "(?<![A-Za-z]PASS)|(?<=SSHPASS)", "Pass": "", "Pwd": ""}
_NAMES["Key"] = "|".join(
    rf"(?<={word}Key)|(?<={word.title()}Key)|(?<={word.title()}-Key)" for word in _KEYS
)
_NAMES[" Key"] = _NAMES[" key"].replace(" key", " Key") + "|(?<=API Key)"
_ASSIGNED = (
    r"(?P<after>\*\*:[ \t]{0,4}|:[ \t]{0,4}\*\*[ \t]{0,4}"
    r"|\\{0,3}[\"']?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4})"
    r"(?:(?P<quote>(?:\\{0,3}[\"']){3}|\\{0,3}[\"'`])"
    r"(?P<quoted>(?:[^\s\"'`\\]|[ ]|\\\\(?!\\[\"'`])){6,200})(?=\\{0,3}[\"'`])"
    r"|(?P<bare>(?:[^\s\"'`\\,;(){}<>\[\]&|]|\\\\){6,200}+)(?![(\[{<]))"
)
_IN_XML = (
    r"(?P<after>(?:\\?[\"'])?>[ \t]{0,4}|\\?[\"'] value=\\?[\"'])"
    r"(?P<quote>)(?P<bare>[^\s\"'`\\<>]{6,200}+)(?=[ \t]{0,4}<\\?/|\\?[\"'])"
)
"""The content of an element, or the attribute `value`, behind the name of a secret."""
_SENTENCE = (
    r"(?P<after>(?: (?:for|of|to|on|in|at|from|für|von|vom|zu|zum|pour|de|du|del|para|di|van|voor)"
    r"\b[^.:=\n\"'`\\]{1,60}?)?"
    r"(?: {1,2}(?:is|was|ist|lautet|hei(?:ß|ss|\\u00df)t|war|est|es|è|é|was set to|is now)"
    r"|(?:['’]|\\u2019)s)(?:(?:[ \u00a0\u202f]|\\u00a0|\\u202f){0,2}:)? {1,2})"
)
"""The words between the name of a secret and its value in a sentence."""
_ADJACENT = r"(?P<after> {1,2})"
"""The space after the name, if the value follows directly."""
_SENTENCE_VALUE = (
    r"(?P<open>(?:__|[*(«“„‹ \u00a0\u202f]|\\u(?:00ab|00a0|202f|201c|201e|2039)|\\?[\"'`]){0,6})"
    r"(?P<value>[^\s\"'`\\]{6,200}+)"
)
"""The value after that, also in Markdown emphasis and in quotation marks."""
_CLOSED = Regex(r"(?:__|[*»“”›)])+[.,;:!?]*$|[.,;:)»“”›]+$")
"""The end of emphasis or quotation after a value."""
_CREDENTIALS = r"(?P<value>[A-Za-z0-9_=~@.+/:-]{8,}+)(?![(\[{<])"
_IN_HEADER = {
    "uthorization": (
        r"\\{0,3}[\"'`]?\]?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"'`]?"
        r"(?P<scheme>[A-Za-z][A-Za-z0-9-]{2,20}[ \t]{1,4})?"
    ),
    "earer": r"(?P<scheme>[ \t]{1,4})",
}
_IN_HEADER |= {name.upper(): behind for name, behind in _IN_HEADER.items()}
_IN_ADDRESS = Regex(
    r"://(?P<user>[^/?#@:\s\"'`\\<>\[\]]{0,100}+)"
    r"(?::(?P<value>[^/?#\s\"'`\\<>\[\]]{3,200}))?(?P<at>@)"
)
_CURL = Regex(r"curl[ \t](?:[^\n\\]|\\\\\\n|\\[^n])*")
"""A command with its continuation lines, also if their ends are escaped in JSON."""
_OF_CURL = Regex(
    r"(?<![A-Za-z0-9-])(?:-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user)(?:=|[ \t]{0,5})"
    r"(?:(?P<quote>\\?[\"'])(?P<owner>[^:\"'\\\n]{0,100}):(?P<quoted>[^\"'\\\n\[\]]{3,200}+)(?=\\?[\"'])"
    r"|\\?[\"']?(?P<user>[^\s:\"'\\]{0,100}+)\\?[\"']?:\\?[\"']?(?P<bare>[^\s\"'\\\[\]]{3,200}+))"
)

_REFERENCE = Regex(
    r"[$~*<{]|%(?![0-9A-Fa-f]{2})|\.{0,2}/|\.\.\.|xxx|(?i:(?:none|null|true|false|undefined"
    r"|change[-_]?me|change[-_]?it|todo|example|placeholder|redacted|secret|pass|passwd|password|pwd"
    r"|test|token|string|optional|required|include)(?!\w)|your[-_]|\[redacted:"
    r"|(?:os|process|env|self|this|config|settings)\.)"
)
"""The start of a value that is no secret but a reference to one, or a placeholder."""
_NO_PASSWORD = Regex(
    r"(?i:[0-9]+-?[a-z]+\b|(?:sha|md|base|utf|argon|pbkdf|aes|rsa|oauth|v)-?[0-9])"
)
"""The start of a word with a digit that describes a password (8-character, SHA256)."""
_NO_VALUE = Regex(
    r"[A-Za-z][\w+.-]*://|[^/]*/.*\.[a-z][a-z0-9]{0,4}$"
    r"|[\w.-]+\.(?:pem|key|pub|crt|txt|env|json|ya?ml)$|[\w.]+\($"
    r"|[A-Z]{2,5}-v[0-9]+$|[A-Za-z0-9]+-(?:managed|issued|signed|signiert|hashed|encoded"
    r"|encrypted|protected|based|basiert|only|aware|style|like|compatible|specific)$"
)
"""A URL, a file, a call, or a word that describes a password; no password."""
_SIGN = Regex(r"[A-Za-z0-9][!#$%^&*?~@]+[A-Za-z0-9]")
_EMAIL = Regex(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|[a-z][\w.-]*@[A-Za-z-]+[0-9]*")
"""An email address, or a user on a machine."""
_INNER_DIGITS = Regex(r"[a-z][0-9]{1,4}[a-z]")
_SPACES = r"(?:[ \t\r\n]|\\[nrt]){1,8}"
_WORD = rf"[^\s\\]{{1,60}}{_SPACES}"
_BEFORE_OPTION = Regex(
    r"(?:(?:(?<![\w-])|(?<=\\[nrt]))--[\w-]{0,40}"
    rf"|(?:\A|\n|\\n|(?:(?<!\w)|(?<=\\[nrt]))(?:default|machine{_SPACES}{_WORD}))(?:{_SPACES})?"
    rf"login{_SPACES}{_WORD}(?:account{_SPACES}{_WORD})?\w?)\Z"
)
"""The text before the name in `--db-password x` and in `machine m login ana password x` (.netrc),
on one line or several, also directly after an escaped line feed in JSON."""
_IN_CALL = Regex(r"""\w\((?:(?:[^()"'`;]|"[^"\n]*"|'[^'\n]*')*,\s*)?\w*$""")
"""The text before the name of a keyword argument, which is not in quotation marks."""
_CALL_CHARS = 200
_DIGIT_WITHIN = Regex(r"[0-9](?=[A-Za-z]{2})(?!Token|Key|Secret|Password|Hash|Sum)")
_LEAST_ENTROPY = 2.5
"""The least entropy, in bits per character, of values of eight or more characters (gitleaks: 3.5,
of ten or more)."""

Mark = Callable[[str, str], str]
"""Returns the replacement for a secret, by its kind and value."""


def _redact_by_place(text: str, mark: Mark) -> str:
    """Replace the secrets that are recognized by their place."""
    if "curl" in text:
        text = _CURL.sub(lambda curl: _OF_CURL.sub(partial(_of_curl, mark), curl[0]), text)
    if "://" in text:
        text = _IN_ADDRESS.sub(partial(_in_address, mark), text)
    for name, behind in _IN_HEADER.items():
        if name in text:
            text = _place_pattern(name, behind, _CREDENTIALS).sub(partial(_of_header, mark), text)
    for name, behind in _NAMES.items():
        if name in text:
            text = _place_pattern(name, behind, _ASSIGNED).sub(partial(_assigned, mark), text)
            if "<" in text:
                text = _place_pattern(name, behind, _IN_XML).sub(partial(_assigned, mark), text)
            text = _place_pattern(name, behind, _SENTENCE + _SENTENCE_VALUE).sub(
                partial(_in_sentence, mark, _is_no_word), text
            )
            text = _place_pattern(name, behind, _ADJACENT + _SENTENCE_VALUE).sub(
                partial(_after_name, mark), text
            )
    return text


def _replaced(found: re.Match[str], group: str, shown: str) -> str:
    start, end = (place - found.start() for place in found.span(group))
    return f"{found[0][:start]}{shown}{found[0][end:]}"


def _of_curl(mark: Mark, found: re.Match[str]) -> str:
    group = "quoted" if found["quote"] else "bare"
    user, value = found["owner"] if found["quote"] else found["user"], found[group]
    if value in (user, "token") or _REFERENCE.match(value) or re.fullmatch(r"[0-9]{1,6}", value):
        return found[0]
    return _replaced(found, group, mark("password", value))


def _in_address(mark: Mark, found: re.Match[str]) -> str:
    """Replace a URL's password or, without one, a user that looks like a token (git servers)."""
    user, value = found["user"], found["value"]
    if value is None:
        is_token = len(user) >= 20 and _mixed(user) and not re.search(r"[^\w-]", user)
        return _replaced(found, "user", mark("token in an address", user)) if is_token else found[0]
    if value == user or _REFERENCE.match(value) or re.fullmatch(r"[x*.]+", value):
        return found[0]
    return _replaced(found, "value", mark("password", value))


def _of_header(mark: Mark, found: re.Match[str]) -> str:
    value = found["value"]
    if _REFERENCE.match(value) or not _is_credential(value, found["scheme"] is not None):
        return found[0]
    return _replaced(found, "value", mark("credentials", value))


def _is_credential(value: str, has_scheme: bool) -> bool:
    """Return whether a header's value is more than a word: with letters and digits, or Basic."""
    try:
        if b":" in b64decode(value, validate=True):
            return True
    except (ValueError, binascii.Error):
        pass
    return _entropy(value) >= _LEAST_ENTROPY and (
        _mixed(value) or (has_scheme and len(value) >= 16 and "_" not in value)
    )


def _assigned(mark: Mark, found: re.Match[str]) -> str:
    group = "quoted" if found["quote"] else "bare"
    value = found[group]
    if found["after"].rstrip().endswith("**"):
        value = value.rstrip("*")
    if _REFERENCE.match(value) or not _is_secret(found, value):
        return found[0]
    rest = found[group].removeprefix(value)
    return _replaced(found, group, f"{mark('assigned secret', value)}{rest}")


def _in_sentence(mark: Mark, is_one: Callable[[str], bool], found: re.Match[str]) -> str:
    """Replace a password in a sentence, but not the sentence's punctuation."""
    value = found["value"].rstrip(".,;:)»“”")
    if found["open"] and (closed := _CLOSED.search(found["value"])):
        value = found["value"][: closed.start()]
    is_none = _NO_VALUE.match(value) or _REFERENCE.match(value) or _NO_PASSWORD.match(value)
    if is_none or not is_one(value):
        return found[0]
    rest = found["value"].removeprefix(value)
    return _replaced(found, "value", f"{mark('assigned secret', value)}{rest}")


def _after_name(mark: Mark, found: re.Match[str]) -> str:
    """Replace a value directly after the name of a secret.

    As an option's value or in a .netrc anything but a word; else what looks like a password.
    """
    before = found.string[max(0, found.start() - _CALL_CHARS) : found.start()]
    return _in_sentence(
        mark, _is_option_value if _BEFORE_OPTION.search(before) else _looks_like_password, found
    )


def _is_option_value(value: str) -> bool:
    """Return whether an option's value may be a secret: not a reference such as `id=x`."""
    return _is_no_word(value) and "=" not in value.rstrip("=")


def _is_no_word(value: str) -> bool:
    """Return whether a token in a sentence is neither a word nor an identifier."""
    if len(value) < 6 or not _mixed(value):
        return False
    is_name = re.fullmatch(r"[A-Za-z_][\w.]*", value) is not None and not value.isalnum()
    return not is_name or sum(map(str.isdigit, value)) > 2


def _looks_like_password(value: str) -> bool:
    """Return whether a word looks like a password by itself.

    It has letters, digits and a sign that words and addresses don't have; or hyphens, upper and
    lower case, and digits between letters, unlike names of standards.
    """
    if len(value) < 8 or not _mixed(value) or _EMAIL.fullmatch(value):
        return False
    if _SIGN.search(value):
        return True
    is_mixed_case = value.lower() != value != value.upper()
    return len(value) >= 12 and is_mixed_case and "-" in value and bool(_INNER_DIGITS.search(value))


def _is_secret(found: re.Match[str], value: str) -> bool:
    """Return whether an assigned value is a secret, rather than a word or an expression.

    Any value of an environment variable (NAME=value) is; so is what an option (--name=value) may
    have; elsewhere it has letters and digits, no spaces, which is rare in words and expressions,
    and enough entropy.
    """
    if found["name"].isupper() and found["after"] == "=":
        return True
    before = found.string[max(0, found.start() - _CALL_CHARS) : found.start()]
    if found["after"] == "=" and _BEFORE_OPTION.search(before) and _is_option_value(value):
        return True
    if len(value) < 8 or " " in value or not _mixed(value):
        return False
    is_name = re.fullmatch(r"[A-Za-z_][\w.]*", value) is not None
    if not found["quote"] and "=" in found["after"] and is_name:
        # In an assignment in code it may be an identifier with a digit, mostly at its end, between
        # spaces or before a comma or a bracket.
        if "_" in value or "." in value.rstrip("."):
            return False
        return sum(map(str.isdigit, value)) > 2 or (
            found["after"] == "="
            and _DIGIT_WITHIN.search(value) is not None
            and not _IN_CALL.search(before)
        )
    return _entropy(value) >= _LEAST_ENTROPY


def _mixed(value: str) -> bool:
    return bool(re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value))


def _entropy(value: str) -> float:
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


@cache
def _place_pattern(name: str, behind: str, value: str) -> re.Pattern[str]:
    return re.compile(f"(?P<name>{re.escape(name)})(?:{behind}){value}")


_URL_SAFE = str.maketrans("+/", "-_")
_SHORTEST_SECRET = 8
"""The least length of known values: shorter ones would occur in ordinary words."""
_SECRET_NAME = Regex(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$")
_ADDRESS = Regex(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@\s:]*:)?([^/?#@\s]+)@")

# A key may follow a letter or digit only if that is the end of an escape.
_STARTS = (
    r"(?<![A-Za-z0-9_-]{0})",
    r"(?<=\\[nrtbf]{0})",
    r"(?<=\\u[0-9A-Fa-f]{{4}}{0})",
    r"(?<=%[0-9A-Fa-f]{{2}}{0})",
)

_SENTINEL = "\ud800"
"""A lone surrogate, which doesn't occur in decoded text."""
_MARK = Regex(rf"\[redacted: [^\[{_SENTINEL}]*{_SENTINEL}([0-9]+){_SENTINEL}\]")


class Rule(msgspec.Struct, frozen=True):
    """A public format of keys: one of the prefixes, followed by the pattern."""

    kind: str
    prefixes: tuple[str, ...]
    pattern: str
    over_lines: bool = False
    """Whether a match may span lines."""


# Between the lines of a key: white space, escapes, quote marks of a diff or an email, line numbers.
# No group is possessive (`(…)*+`): before Python 3.11.5 one that fails half-way doesn't backtrack.
_GAP = r"(?:[\s+|>]++|\\{1,8}[nrt]|[0-9]{1,7}(?:[\t:|]|\\{1,8}t)){0,200}"
_PRIVATE_KEY = (
    r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_GAP}(?:[A-Za-z0-9+/=]{{16,}}+|[A-Z][A-Za-z-]{{2,30}}: [^\n\\\"]{{0,200}}+))*"
    rf"(?:{_GAP}[A-Za-z0-9+/=]{{1,15}}+(?={_GAP}-----END))?"
    rf"(?:{_GAP}-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----)?"
)


def _format(line: str) -> Rule:
    """Read a line of `key_formats.txt`: `kind: prefix… pattern`."""
    kind, _, rest = line.partition(": ")
    *prefixes, pattern = rest.split()
    return Rule(kind, tuple(prefixes), pattern)


RULES = (
    *map(_format, (Path(__file__).parent / "key_formats.txt").read_text("utf-8").splitlines()),
    Rule("private key", ("-----BEGIN ",), _PRIVATE_KEY, over_lines=True),
)

_KEY_RUN = Regex(r"[A-Za-z0-9_.+/=~-]{15,}")
"""Matches where keys may be: all public formats are at least so long, without spaces."""

_known: dict[str, str] = {}
"""The encoded forms of values given to `know`, with their names, the longest first.

It is replaced, never changed in place, since other threads iterate over it.
"""
_known_lock = threading.Lock()


def know(secrets: Mapping[str, str]) -> None:
    """Make `redact` replace these values by their names from now on, except short ones."""
    global _known
    told = {
        shape: name
        for name, value in secrets.items()
        for form in {value, value.strip()}
        if len(form) >= _SHORTEST_SECRET
        for shape in _encodings(form)
    }
    with _known_lock:
        _known = dict(sorted((_known | told).items(), key=lambda item: -len(item[0])))


def _encodings(secret: str) -> set[str]:
    """Return the encoded forms of a value: plain, in JSON, in a URL, in hex and base64.

    In base64 there are three forms, depending on the offset in the encoded text: digits that also
    encode neighbouring bytes are left out.
    """
    data = secret.encode("utf-8", "surrogatepass")
    shapes = {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), data.hex()}
    shapes.add(data.hex().upper())
    for before in range(3):
        whole = (before + len(data)) // 3 * 4
        digits = b64encode(b"\0" * before + data)[(0, 2, 3)[before] : whole].decode()
        if len(digits) >= _SHORTEST_SECRET:
            shapes |= {digits, digits.translate(_URL_SAFE), quote(digits, safe="")}
    return shapes


def known() -> tuple[tuple[str, str], ...]:
    """Return names and values given to `know`, to pass them to a child process that redacts."""
    return tuple((name, value) for value, name in _known.items())


def secrets_among(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with secrets: by their names, except those with paths as values.

    Also the passwords in URLs, whatever the variable's name.
    """
    return passwords_in(environ) | {
        name: value
        for name, value in environ.items()
        if _SECRET_NAME.search(name.upper()) and not value.startswith(("/", "~", "./", "../"))
    }


_LOGS_IN = Regex(r"(?i)auth|cookie")
_MIXED = Regex(r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{10,}")


def secrets_given(values: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets in a server's variables and headers: as `secrets_among`, and besides those
    whose names say that they log in, or whose values could be keys.
    """
    return secrets_among(values) | {
        name: value
        for name, value in values.items()
        if _LOGS_IN.search(name) or _is_like_a_key(value)
    }


def _is_like_a_key(value: str) -> bool:
    """Return whether a value could be a key, whatever its name: long, and no words or numbers.

    No path or address is taken for one.
    """
    is_place = value.startswith(("/", "~", ".")) or "://" in value
    return len(value) >= 16 and not is_place and _MIXED.search(value) is not None


def passwords_in(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets in `scheme://user:password@host` and `scheme://token@host`, by name."""
    found = {name: _ADDRESS.match(value) for name, value in addresses.items()}
    return {name: address[1] for name, address in found.items() if address}


def redact(text: str) -> str:
    """Replace all secrets in a text that are known or recognized by format or place."""
    if "\\\\" in text and text.startswith(("{", "[", '"')):
        text = _redacted_within(text)
    return _redacted(text, lambda name, _: f"[redacted: {name}]")


_NAMED = Regex(
    r"(?i)key|token|secret|pass|pwd|kennwort|contrase|credential|authorization|bearer|curl|://"
)
"""A part of what stands before a secret that has no public format, or in a private key."""


def _redacted_within(text: str) -> str:
    """Redact the strings of a JSON text that have escapes of their own, such as another JSON file.

    The rules know the escapes of one level.
    """
    try:
        value = json.loads(text)
        found = _redacted_strings(value)
    except (ValueError, RecursionError):
        return text
    return text if found == value else clean(json.dumps(found, ensure_ascii=False))


def _redacted_strings(value: object) -> object:
    match value:
        case str():
            return redact(value) if "\\" in value and _NAMED.search(value) else value
        case list():
            return [_redacted_strings(each) for each in value]
        case dict():
            return {name: _redacted_strings(each) for name, each in value.items()}
        case _:
            return value


def redact_lines(text: str) -> str:
    """Redact a text, keeping the number of lines, so that line numbers after a secret hold."""
    return _redacted(text, lambda name, secret: f"[redacted: {name}]" + "\n" * secret.count("\n"))


LONGEST_SECRET = 16 * 1024
"""The maximum length of a secret that may span the place where a text is cut."""


def first_of(text: str, limit: int) -> str:
    """Return the first `limit` characters of a text, without a part of a secret at their end."""
    return text if len(text) <= limit else redact(text[: limit + LONGEST_SECRET])[:limit]


def last_of(text: str, limit: int) -> str:
    """Return the last `limit` characters of a text, without a part of a secret at their start."""
    return text if len(text) <= limit else redact(text[-limit - LONGEST_SECRET :])[-limit:]


def ends_of(text: str, limit: int) -> str:
    """Cut a text with `clip_middle`, redacted so that no part of a secret is left."""
    return text if len(text) <= limit else clip_middle(redact(text), limit)


class Parted(msgspec.Struct, frozen=True):
    """A text split at its secrets."""

    pieces: tuple[str, ...]
    """The text before, between and after the secrets: one more than there are secrets."""
    secrets: tuple[tuple[str, str], ...]
    """The kind and value of each secret, in order."""


def parted(text: str) -> Parted | None:
    """Split a text at the secrets that `redact` replaces; None if the parts don't restore it."""
    found: list[tuple[str, str]] = []

    def whole(marked: str) -> str:
        return _MARK.sub(lambda mark: found[int(mark[1])][1], marked)

    def mark(name: str, secret: str) -> str:
        found.append((name, whole(secret)))
        return f"[redacted: {name}{_SENTINEL}{len(found) - 1}{_SENTINEL}]"

    if _SENTINEL in text:
        return None
    marked = _redacted(text, mark)
    shown = _MARK.sub(lambda mark: f"[redacted: {found[int(mark[1])][0]}]", marked)
    if whole(marked) != text or shown != redact(shown):
        return None
    parts = _MARK.split(marked)
    return Parted(tuple(parts[::2]), tuple(found[int(number)] for number in parts[1::2]))


def reaches_over_lines(text: str) -> bool:
    """Return whether a secret may span lines, so that lines can't be redacted separately."""
    return (
        any("\n" in value and value in text for value in _known)
        or any(prefix in text for rule in RULES if rule.over_lines for prefix in rule.prefixes)
        or ("\\\n" in text and "curl" in text)
    )


def _redacted(text: str, mark: Mark) -> str:
    for value, name in _known.items():
        if value in text:
            text = text.replace(value, mark(name, value))
    # Of a program, a tenth is in runs long enough for a key.
    runs = " ".join(_KEY_RUN.findall(text))
    for rule in RULES:
        for prefix in rule.prefixes:
            if prefix in (text if rule.over_lines else runs):
                keys = _compiled(prefix, rule.pattern)
                text = keys.sub(lambda found: mark(rule.kind, found[0]), text)  # noqa: B023
    return _redact_by_place(text, mark)


def redact_all(texts: Iterable[str]) -> tuple[str, ...]:
    """Redact each text."""
    return tuple(redact(text) for text in texts)


@cache
def _compiled(prefix: str, pattern: str) -> re.Pattern[str]:
    literal = re.escape(prefix)
    # A prefix of dashes delimits itself, so anything may precede it.
    starts = "|".join(start.format(literal) for start in _STARTS)
    before = "" if prefix.startswith("-----") else f"(?:{starts})"
    return re.compile(f"{literal}{before}(?:{pattern})")


_PR_SET_DUMPABLE = 4


def protect_process() -> bool:
    """Hide this process's memory and environment, with their keys, from its child processes.

    Returns True if the system supports it (Linux; for everyone except root). It also disables
    core dumps and debuggers.
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
