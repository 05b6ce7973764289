"""Secrets that are known by where they stand, whatever they look like.

Behind a name such as DB_PASSWORD, in an Authorization header, before the `@` of an address,
behind `curl -u`. Each place begins with a fixed text, which is looked for first, and looks at
each character a bounded number of times. What says where a secret is (`$VAR`, `os.environ`),
and what is but a word in its place, is left. The rules follow those of gitleaks (MIT, see
docs/licences.md).
"""

import binascii
import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

_KEYS = ("api", "access", "secret", "private", "auth", "encryption", "signing", "client")
_NAMES = {
    "assword": "",
    "asswd": "",
    "assphrase": "",
    "pass": "(?<![A-Za-z]pass)",
    "pwd": "",
    "ecret": "",
    "oken": "",
    "redentials": "",
    "_key": "|".join(rf"(?<={word}_key)" for word in _KEYS),
    "-key": "|".join(rf"(?<={word}-key)" for word in _KEYS),
    "pikey": "(?<=apikey)",
}
"""Ends of names of what is secret, without the letter whose case differs, and what stands there."""
_NAMES |= {name.upper(): _NAMES[name].upper() for name in tuple(_NAMES) if name != "pass"}
_NAMES |= {"PASS": "(?<![A-Za-z]PASS)|(?<=SSHPASS)", "Pass": "", "Pwd": ""}
_NAMES["Key"] = "|".join(
    rf"(?<={word}Key)|(?<={word.title()}Key)|(?<={word.title()}-Key)" for word in _KEYS
)
_ASSIGNED = (
    r"(?P<after>\\?[\"']?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4})"
    r"(?:(?P<quote>\\?[\"'`])(?P<quoted>(?:[^\s\"'`\\]|[ ]|\\\\){6,200}+)(?=\\?[\"'`])"
    r"|(?P<bare>(?:[^\s\"'`\\,;(){}<>\[\]&|]|\\\\){6,200}+)(?![(\[{<]))"
)
_CREDENTIALS = r"(?P<value>[A-Za-z0-9_=~@.+/:-]{8,}+)(?![(\[{<])"
_IN_HEADER = {
    "uthorization": (
        r"\\?[\"'`]?\]?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"'`]?"
        r"(?P<scheme>[A-Za-z][A-Za-z0-9-]{2,20}[ \t]{1,4})?"
    ),
    "earer": r"(?P<scheme>[ \t]{1,4})",
}
_IN_HEADER |= {name.upper(): behind for name, behind in _IN_HEADER.items()}
_IN_ADDRESS = re.compile(
    r"://(?P<user>[^/?#@:\s\"'`\\<>\[\]]{0,100}+)"
    r"(?::(?P<value>[^/?#\s\"'`\\<>\[\]]{3,200}))?(?P<at>@)"
)
_CURL = re.compile(r"curl[ \t](?:[^\n\\]|\\\\\\n|\\[^n])*")
"""With the lines that continue it, also where JSON escapes their ends."""
_OF_CURL = re.compile(
    r"(?<![A-Za-z0-9-])(?:-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user)(?:=|[ \t]{0,5})"
    r"(?:(?P<quote>\\?[\"'])(?P<owner>[^:\"'\\\n]{0,100}):(?P<quoted>[^\"'\\\n\[\]]{3,200}+)(?=\\?[\"'])"
    r"|\\?[\"']?(?P<user>[^\s:\"'\\]{0,100}+)\\?[\"']?:\\?[\"']?(?P<bare>[^\s\"'\\\[\]]{3,200}+))"
)

_REFERENCE = re.compile(
    r"[$~*<{]|%(?![0-9A-Fa-f]{2})|\.{0,2}/|\.\.\.|xxx|(?i:(?:none|null|true|false|undefined"
    r"|change[-_]?me|change[-_]?it|todo|example|placeholder|redacted|secret|pass|passwd|password|pwd"
    r"|test|token|string|optional|required|include)(?!\w)|your[-_]|\[redacted:"
    r"|(?:os|process|env|self|this|config|settings)\.)"
)
"""How a value begins that is no secret but says where one is, or that there is none."""
_LEAST_ENTROPY = 2.5
"""Bits a character, of values of eight characters and more (gitleaks: 3.5, of ten and more)."""

Mark = Callable[[str, str], str]
"""From what kind of secret it is, and the secret, to what stands there from then on."""


def without_placed(text: str, mark: Mark) -> str:
    """The text with a mark for each secret that is known by its place."""
    if "curl" in text:
        text = _CURL.sub(lambda curl: _OF_CURL.sub(partial(_of_curl, mark), curl[0]), text)
    if "://" in text:
        text = _IN_ADDRESS.sub(partial(_in_address, mark), text)
    for name, behind in _IN_HEADER.items():
        if name in text:
            text = _header(name, behind).sub(partial(_of_header, mark), text)
    for name, behind in _NAMES.items():
        if name in text:
            text = _assignment(name, behind).sub(partial(_assigned, mark), text)
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
    """The password; where there is none, a user that looks like a token, as of git servers."""
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
    """Whether it is more than a word: it has letters and digits, or is a user with a password."""
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
    if _REFERENCE.match(value) or not _is_secret(found, value):
        return found[0]
    return _replaced(found, group, mark("assigned secret", value))


def _is_secret(found: re.Match[str], value: str) -> bool:
    """Whether what a name is given is a secret itself, rather than a word or a piece of code.

    Of a variable of the environment (NAME=value) all is believed; elsewhere a value has letters
    and digits and no blanks, as words and expressions seldom do, and enough different characters.
    """
    if found["name"].isupper() and found["after"] == "=":
        return True
    if len(value) < 8 or " " in value or not _mixed(value):
        return False
    is_name = re.fullmatch(r"[A-Za-z_][\w.]*", value) is not None
    if not found["quote"] and "=" in found["after"] and is_name:
        # On the right of an assignment in code it may be an identifier that has a digit.
        return sum(map(str.isdigit, value)) > 2 and "_" not in value and "." not in value
    return _entropy(value) >= _LEAST_ENTROPY


def _mixed(value: str) -> bool:
    return bool(re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value))


def _entropy(value: str) -> float:
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


@cache
def _assignment(name: str, behind: str) -> re.Pattern[str]:
    return re.compile(f"(?P<name>{re.escape(name)}){f'(?:{behind})' if behind else ''}{_ASSIGNED}")


@cache
def _header(name: str, behind: str) -> re.Pattern[str]:
    return re.compile(f"{name}{behind}{_CREDENTIALS}")
