"""Secrets never reach a file: known values, and what its format gives away."""

import base64
import binascii
import json
import random
import re
import string
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ragmem import redact as module
from ragmem.config import check_tree
from ragmem.redact import RULES, know, parted, redact, secrets_among

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests made known is known to them alone."""
    monkeypatch.setattr(module, "_known", {})
    return


def chars(alphabet: str, count: int) -> str:
    """As a key has them; the same in each run."""
    return "".join(random.Random(count).choices(alphabet, k=count))


WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BODY = "\n".join(chars(WORD + "+/", 64) for _ in range(12)) + "\n" + chars(WORD, 11) + "="

# Put together here, so that no scanner takes this file for a leak.
KEYS = {
    "Anthropic key": "sk-" + "ant-api03-" + chars(WORD + "-_", 90),
    "API key": "sk-" + "proj-" + chars(WORD + "-_", 90),
    "API key ": "sk-" + "or-v1-" + chars(HEX, 64),
    "API key  ": "sk-" + chars(WORD, 47) + "7",
    "Stripe key": "sk_" + "live_" + chars(WORD, 24),
    "Stripe secret": "whsec_" + chars(WORD, 32),
    "GitHub token": "ghp" + "_" + chars(WORD, 36),
    "GitHub token ": "github" + "_pat_" + chars(WORD, 22) + "_" + chars(WORD, 59),
    "GitLab token": "glpat" + "-" + chars(WORD, 20),
    "Slack token": "xoxb" + "-123456789012-123456789012-" + chars(WORD, 24),
    "Slack webhook": "hooks.slack.com" + "/services/T01234567/B01234567/" + chars(WORD, 24),
    "AWS key": "AKIA" + chars(string.ascii_uppercase + "234567", 16),
    "Google key": "AIza" + chars(WORD + "-_", 35),
    "Google secret": "GOCSPX" + "-" + chars(WORD, 28),
    "Google token": "ya29" + "." + chars(WORD, 60),
    "Hugging Face token": "hf" + "_" + chars(WORD, 34),
    "Groq key": "gsk" + "_" + chars(WORD, 52),
    "xAI key": "xai" + "-" + chars(WORD, 80),
    "Perplexity key": "pplx" + "-" + chars(WORD, 48),
    "Replicate token": "r8" + "_" + chars(WORD, 37),
    "Cerebras key": "csk" + "-" + chars(WORD, 48),
    "NVIDIA key": "nvapi" + "-" + chars(WORD + "-_", 64),
    "npm token": "npm" + "_" + chars(WORD, 36),
    "PyPI token": "pypi" + "-AgEIcHlwaS5vcmc" + chars(WORD + "-_", 100),
    "Docker token": "dckr" + "_pat_" + chars(WORD + "-_", 27),
    "DigitalOcean token": "dop" + "_v1_" + chars(HEX, 64),
    "Shopify token": "shpat" + "_" + chars(HEX, 32),
    "SendGrid key": "SG" + "." + chars(WORD, 22) + "." + chars(WORD, 43),
    "Twilio key": "SK" + chars(HEX, 32),
    "Mailgun key": "key" + "-" + chars(HEX, 32),
    "Databricks token": "dapi" + chars(HEX, 32),
    "Vault token": "hvs" + "." + chars(WORD, 90),
    "Linear key": "lin" + "_api_" + chars(WORD, 40),
    "Notion token": "ntn" + "_" + chars(WORD, 46),
    "Grafana token": "glsa" + "_" + chars(WORD, 32) + "_" + chars(HEX, 8),
    "Supabase token": "sbp" + "_" + chars(HEX, 40),
    "Postman key": "PMAK" + "-" + chars(HEX, 24) + "-" + chars(HEX, 34),
    "1Password key": "ops" + "_eyJ" + chars(WORD, 250),
    "Adobe secret": "p8e" + "-" + chars(WORD, 32),
    "Alibaba key": "LTAI" + chars(WORD, 20),
    "Artifactory key": "AKCp" + chars(WORD, 69),
    "Artifactory token": "cmVmd" + chars(WORD, 59),
    "Atlassian token": "ATATT3" + chars(WORD, 180),
    "Bedrock key": "ABSK" + chars(WORD, 120),
    "Bedrock key ": "bedrock-api" + "-key-" + chars(WORD, 60),
    "Clojars token": "CLOJARS" + "_" + chars(HEX, 60),
    "Cloudflare key": "v1.0" + "-" + chars(HEX, 24) + "-" + chars(HEX, 146),
    "Doppler token": "dp" + ".pt." + chars(WORD, 43),
    "Duffel token": "duffel" + "_live_" + chars(WORD, 43),
    "Dynatrace token": "dt0c01" + "." + chars(WORD, 24) + "." + chars(WORD, 64),
    "EasyPost key": "EZAK" + chars(WORD, 54),
    "Facebook token": "EAAM" + chars(WORD, 110),
    "Flutterwave key": "FLWSECK_TEST" + "-" + chars(HEX, 12),
    "Fly token": "fm2" + "_" + chars(WORD, 110),
    "Frame.io token": "fio-u" + "-" + chars(WORD, 64),
    "Grafana key": "eyJrIjoi" + chars(WORD, 80),
    "Heroku key": "HRKU-AA" + chars(WORD, 58),
    "Netlify token": "nfp" + "_" + chars(WORD, 36),
    "New Relic key": "NRAK" + "-" + chars(WORD, 27),
    "Octopus key": "API" + "-" + chars(string.ascii_uppercase + string.digits, 26),
    "OpenShift token": "sha256" + "~" + chars(WORD, 43),
    "PlanetScale secret": "pscale_tkn" + "_" + chars(WORD, 43),
    "Prefect token": "pnu" + "_" + chars(WORD, 36),
    "Pulumi token": "pul" + "-" + chars(HEX, 40),
    "ReadMe token": "rdme" + "_" + chars(HEX, 70),
    "RubyGems token": "rubygems" + "_" + chars(HEX, 48),
    "Scalingo token": "tk-us" + "-" + chars(WORD, 48),
    "Brevo token": "xkeysib" + "-" + chars(HEX, 64) + "-" + chars(WORD, 16),
    "Sentry token": "sntryu" + "_" + chars(HEX, 64),
    "Shippo token": "shippo" + "_live_" + chars(HEX, 40),
    "SonarQube token": "squ" + "_" + chars(HEX, 40),
    "Sourcegraph token": "sgp" + "_" + chars(HEX, 40),
    "Square token": "sq0atp" + "-" + chars(WORD, 22),
    "Typeform token": "tfp" + "_" + chars(WORD, 59),
    "Yandex key": "AQVN" + chars(WORD, 36),
    "age key": "AGE-SECRET" + "-KEY-1" + chars(string.ascii_uppercase + string.digits, 58),
    "JWT": f"eyJ{chars(WORD, 33)}.eyJ{chars(WORD, 80)}.{chars(WORD + '-_', 43)}",
    "private key": f"-----BEGIN RSA PRIVATE{' '}KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
}


def test_every_rule_has_its_example() -> None:
    assert {kind.strip() for kind in KEYS} == {rule.kind for rule in RULES}
    assert len(RULES) >= 30


def test_the_shortest_key_of_each_format_is_found_too() -> None:
    """Keys are looked for only in what is long enough for one."""
    for kind, key in KEYS.items():
        rule = next(r for r in RULES if r.kind == kind.strip() and key.startswith(r.prefixes))
        pattern = re.compile(f"(?:{'|'.join(map(re.escape, rule.prefixes))})(?:{rule.pattern})")
        cuts = (key[:end] for end in range(len(key) + 1))
        shortest = next(cut for cut in cuts if pattern.match(cut))
        assert redact(f"<{shortest}>") == f"<[redacted: {rule.kind}]>"


def within_json(text: str) -> Iterator[str]:
    """A text redacted in JSON, and in JSON in JSON, as in a tool's argument that is a JSON file."""
    for depth in (1, 2, 3):
        found: Any = text
        for _ in range(depth):
            found = json.dumps({"text": found})
        found = redact(found)
        for _ in range(depth):
            found = json.loads(found)["text"]
        yield found


AROUND = (
    "{}", "export KEY={}\nnext line", 'key: "{}", other: 1', "Authorization: Bearer {}\r\n",
    "Use {}, please.", "https://example.org/?a=b&key%3D{}&c=d", "<tag>({})</tag>",
)  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_known_by_their_format(kind: str) -> None:
    """And nothing around them is touched."""
    for around in AROUND:
        assert redact(around.format(KEYS[kind])) == around.format(f"[redacted: {kind.strip()}]")
    # Arguments and results are JSON: escapes before a key hide none of it.
    text, shown = "a\n{0}\nb\t{0}\x1b{0}", f"[redacted: {kind.strip()}]"
    for found in within_json(text.format(KEYS[kind])):
        assert found == text.format(shown)


@pytest.mark.parametrize(
    "before",
    ["{:>6}\t", "+ ", "> ", "{}:", "    "],
    ids=["numbered", "diff", "mail", "grep", "yaml"],
)
def test_a_private_key_is_found_as_tools_show_it(before: str) -> None:
    shown = "\n".join(
        before.format(number) + line
        for number, line in enumerate(f"first\n{KEYS['private key']}\nlast".split("\n"), 1)
    )
    in_a_log = redact(f"INFO {json.dumps(json.dumps(shown))}").removeprefix("INFO ")
    for text in (redact(shown), *within_json(shown), json.loads(json.loads(in_a_log))):
        lines = text.split("\n")
        assert lines[0].endswith("first")
        assert lines[-1].endswith("last")
        assert not any(line.strip() in text for line in BODY.split("\n"))


def test_what_stands_beside_a_secret_in_nested_json_stays() -> None:
    """Also what a JSON text can't hold in itself, such as half an emoji."""
    file = json.dumps({"key": KEYS["private key"], "path": "C:\\new", "emoji": "\ud83d", "n": 1.50})
    call = {"path": "ä.json", "content": file, "lines": [1, None, True], "other": "\ud83d\\n"}
    found = json.loads(redact(json.dumps(call)))
    assert json.loads(found.pop("content")) == {
        "key": "[redacted: private key]",
        "path": "C:\\new",
        "emoji": "\ud83d",
        "n": 1.5,
    }
    assert found == {"path": "ä.json", "lines": [1, None, True], "other": "\ufffd\\n"}
    for broken in ('{"a": "\\\\"', "[" * 100_000 + "\\\\"):
        assert redact(broken) == broken


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "hunter2Xabc9"),
        ("password", "hunter2Xabc9\\"),
        ("Authorization", "Bearer hunter2Xabc9kQ7z"),
    ],
)
def test_an_assigned_secret_is_found_in_json_in_json_in_a_log(name: str, value: str) -> None:
    """The text around it can be read as before."""
    inner = json.dumps({name: value, "n": 1})
    logged = redact(f"INFO {json.dumps({'a': json.dumps({'b': inner})})}")
    assert "hunter2" not in logged
    read = json.loads(json.loads(logged.removeprefix("INFO "))["a"])["b"]
    assert "[redacted: " in read
    assert read.endswith('"n": 1}')


def test_a_private_key_that_was_cut_takes_nothing_else_along() -> None:
    cut = KEYS["private key"].rpartition("\n")[0].rpartition("\n")[0]
    handbook = "\n\nThis is how such a key begins, said the handbook of the server.\n"
    assert redact(cut + handbook) == f"[redacted: private key]{handbook}"
    told = "Search for -----BEGIN PRIVATE KEY----- in the files of the project."
    assert redact(told) == "Search for [redacted: private key] in the files of the project."


def test_a_private_key_whose_header_is_last_leaves_the_json_around_it_whole() -> None:
    shown = {
        "text": f"passed\n{KEYS['private key'].partition(chr(10))[0]}\nProc-Type: 4,ENC",
        "a": 1,
    }
    assert json.loads(redact(json.dumps(shown))) == {
        "text": "passed\n[redacted: private key]",
        "a": 1,
    }


def test_no_group_of_a_rule_is_possessive() -> None:
    """Before Python 3.11.5 such a group keeps what it took when it fails half-way."""
    assert [
        rule.kind for rule in RULES if re.search(r"\)(?:[*+?]|\{[\d,]+\})\+", rule.pattern)
    ] == []


INNOCENT = [
    "The task-force-for-disk-and-risk-management met.",
    "class='sk-circle-fade-dot another-class-of-it'",
    "pip install pypi-simple; npm_config_registry=https://example.org",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "550e8400-e29b-41d4-a716-446655440000",
    "AKIAN is no key, AIzawa neither; SKILL, SKU, dapi",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "xoxo, hf_hub_download, gsk_x, ghp_short, eyJustAWord.eyJ.x",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "SG.1 and SG.2 are groups of the set",
]


def test_known_values_are_replaced_wherever_they_stand() -> None:
    """As they are, as JSON and URLs write them; the longest first."""
    know({"A_KEY": 'pass"word\\é', "LONG_KEY": "canary-123-and-more", "SHORT_KEY": "canary-123"})
    assert redact('xpass"word\\éx') == "x[redacted: A_KEY]x"
    assert json.loads(redact(json.dumps(['pass"word\\é']))) == ["[redacted: A_KEY]"]
    assert redact("?p=pass%22word%5C%C3%A9&") == "?p=[redacted: A_KEY]&"
    know({"PATH_KEY": "canary/456"})
    assert redact("?p=canary%2F456&") == "?p=[redacted: PATH_KEY]&"
    assert redact("canary-123-and-more canary-123") == "[redacted: LONG_KEY] [redacted: SHORT_KEY]"


@pytest.mark.parametrize("before", ["", "u:", "user:x"])
@pytest.mark.parametrize(
    "encode",
    [
        base64.b64encode,
        base64.urlsafe_b64encode,
        binascii.hexlify,
        lambda data: binascii.hexlify(data).upper(),
    ],
)
def test_known_values_in_other_writings(before: str, encode: Callable[[bytes], bytes]) -> None:
    """In base64, wherever it begins in what was encoded, and in hex; nothing of it is left."""
    secret = "s3cr3t>>value??of-the-key"
    know({"A_KEY": secret})
    written = encode(f"{before}{secret}:and more".encode()).decode()
    shown = redact(f"Authorization: Basic {written}")
    assert "[redacted: A_KEY]" in shown
    left = shown.replace("[redacted: A_KEY]", "").removeprefix("Authorization: Basic ")
    assert len(left) <= len(encode(f"{before}:and more".encode())) + 6


def test_keys_are_found_in_base64_that_is_short_or_part_of_an_address() -> None:
    know({"A_KEY": "canary-1", "B_KEY": "canary???"})
    written = quote(base64.b64encode(b"canary???"), safe="")
    assert "%2F" in written
    assert redact(written) == "[redacted: B_KEY]"
    assert redact(base64.b64encode(b"canary-1").decode()) == "[redacted: A_KEY]LTE="


ASSIGNED = [
    "DB_PASSWORD={}", 'export POSTGRES_PASSWORD="{}"', "api_key = '{}'", '"password": "{}"',
    "  clientSecret: {}", "mysql --password={} app", "PGPASSWORD={} psql; TOKEN_COUNT=123456",
    "DB_PASS={}", "DB_PWD={} PWD=/home/ana", "smtpPass: '{}'",
    "Server=db;User Id=sa;Pwd={};Timeout=30", "SSHPASS={} sshpass -e ssh ana@plum.example",
    "X-Api-Key: {}", "API Key: {}", "Api key = {}", "Access Key: {}", "- **Password**: {}",
    "- **API key:** `{}`", "- Password: **{}**", 'psycopg2.connect("host=plum password={}")',
    'password = """{}"""', "<dbPassword>{}</dbPassword>", '<string name="api_key">{}</string>',
    '<add key="Password" value="{}"/>',
]  # fmt: skip


PLACED = [
    "Authorization: Bearer {}",
    '-H "authorization: token {}" https://plum.example',
    '{{"Authorization": "ApiKey {}"}}',
    "headers['Authorization'] = 'Bearer {}'",
    "Proxy-Authorization: {}\r\nHost: plum.example",
    "send it as Bearer {}, please",
    "https://ana:{}@plum.example/a?b=c@d",
    "postgresql+psycopg://ana:{}@[::1]:5432/garden",
    "redis://:{}@localhost:6379/0 and https://ana@plum.example:8080/",
    "git clone https://{}@git.example/garden.git",
    "curl -u ana:{} https://plum.example",
    "curl -sSfuana:{} https://plum.example",
    "curl -X POST --user='ana:{}' https://plum.example",
    'curl https://plum.example \\\n  -d x=1 \\\n  --proxy-user "ana:{}" -o out',
]


@pytest.mark.parametrize("around", PLACED)
def test_what_stands_where_credentials_stand_is_replaced(around: str) -> None:
    """In headers, in addresses and behind `curl -u`; also inside JSON, and nothing beside it."""
    secret = "Xk29fjq2z7LmQw83hT0p"
    text = f"first\n{around.format(secret)}\nlast"
    for shown in (redact(text), *within_json(text)):
        kind = re.search(r"\[redacted: ([a-z ]+)\]", shown)
        assert kind, shown
        assert shown == text.replace(secret, kind[0])


def test_weak_passwords_of_addresses_and_logins_are_replaced() -> None:
    basic = base64.b64encode(b"ana:plum").decode()
    for text, secret in {
        "https://ana:hunter@plum.example": "hunter",
        "curl -u ana:hunter https://plum.example": "hunter",
        f"Authorization: Basic {basic}": basic,
        "Authorization: Bearer correct-horse-battery": "correct-horse-battery",
    }.items():
        assert secret not in redact(text)


def test_a_weak_password_in_an_environment_file_is_replaced_too() -> None:
    assert redact("DB_PASSWORD=horse-battery\nDB_HOST=plum") == (
        "DB_PASSWORD=[redacted: assigned secret]\nDB_HOST=plum"
    )
    assert redact('ADMIN_PASSWD="correct horse"') == 'ADMIN_PASSWD="[redacted: assigned secret]"'


SAID = [
    "set password={} please", "set password={}, please", "the password is {}",
    "The staging password is {}.", "The password for the staging server is '{}', note it",
    "the API key is {}", "Das Passwort ist {}, bitte merken", "Le mot de passe de la base est {}",
    "La contraseña del servidor es {}", "Le mot de passe de la base est : {}",
    "Le mot de passe est\u00a0: {}.", "Le mot de passe est « {} »",
    "Le mot de passe est «\u202f{}\u202f», je crois", "The password is **{}**.",
    "My password is: __{}__", "The password is **`{}`**!", "The password is “{}”.",
    "The password's {}", "The token’s {}, as ever", "Das Passwort ist „{}“.",
    "Das Passwort heißt {}", "Das Passwort heisst {}.",
]  # fmt: skip
BESIDE = [
    "my password {}", "use password {}, please", "log in with the password `{}`.",
    'the API key "{}" works', "Passwort {} bitte merken", "le mot de passe {}",
]  # fmt: skip
GIVEN = [
    "mysqldump --password {} app", "gh auth --token {}; ls", "deploy --db-password '{}'",
    "--token {}", "tool --api-key {}", "machine plum.example login ana password {}",
    "machine plum.example\nlogin ana\npassword {}",
]  # fmt: skip


RANDOM, FEW_DIGITS = ("Xk29fjq2z7Lm",), ("hunter2secretXY", "horse-9-battery")
LOOKING_LIKE_ONE = ("Canary-pa55word-Zx9", "hunter2!x", "P@ssw0rd1", "Tr0ub4dor&3")


@pytest.mark.parametrize(
    ("around", "secrets"),
    [
        *((around, RANDOM) for around in ASSIGNED),
        *((around, FEW_DIGITS) for around in (*SAID, *GIVEN)),
        # As the value of an option it is no identifier of code.
        *((around.replace(" {}", "={}"), ("sommer24",)) for around in GIVEN[:2]),
        # Nothing but its looks tells one from the next word there.
        *((around, LOOKING_LIKE_ONE) for around in BESIDE),
    ],
)
def test_a_password_is_replaced_where_one_stands(around: str, secrets: tuple[str, ...]) -> None:
    """Assigned to its name, said in a sentence, given to a command; also inside JSON.

    Its punctuation stays.
    """
    for secret in secrets:
        said, shown = around.format(secret), around.format("[redacted: assigned secret]")
        assert redact(said) == shown
        text = f"first\n{said}\nlast"
        for found in within_json(text):
            assert found == text.replace(said, shown)


def test_marks_that_may_be_of_a_password_go_with_it() -> None:
    assert redact("The password is hunter22!!") == "The password is [redacted: assigned secret]"
    assert redact("The password is Sommer(2024)") == "The password is [redacted: assigned secret])"


NOT_SAID = [
    "The password is required, and is 8-characters long or 12digits.",
    "the password is SHA256-hashed; the token is base64url",
    "The password is stored in auth2.py",
    "the password is config.db2.value, the token is T_STRING2",
    "The secret of the first is in vault2, the password of user2 is checked in step3.",
    "The private key is keys/deploy_2024.pem, the secret is deploy_2024.pem",
    "The token is https://x.io/a1b2c3",
    "The secret is k8s-managed; the pass is level1-only.",
    "The token is auth0-issued.",
    "der Token ist RS256-signiert",
    "The token is JWT-v2.",
    "The token is `get_token2()`, the password is *not* stored.",
    "The password is **SHA256**-hashed",
    "the password reset of user2, the password field2-b, password Argon2-hashed",
    "the token OAuth2-Client-Flow, the secret K8s-managed-thing, a password PBKDF2-HMAC-SHA256",
    "password VARCHAR(255) NOT NULL, password bob2@example.com, password root@server2",
    "docker build --secret id=npm2,src=.npmrc2 --password $PASSWORD2 --token <token-1>",
    "the token C++17-and, a commit token abc+def1, the secret user@Host2",
    "login with the password reset2 of ana; --password-file pass2.txt; a --token or api_key2",
    "with the secret 3fa85f64-5717-4562-b3fc-2c963f66afa6 and the token bucket2.queue-a",
]


NO_SECRET = [
    "<password>${env.DEPLOY_1}</password> <token>identifier</token> Promise<Token>token2<T>",
    '<label for="password">Password</label> <b class="token">utf8 text</b> Token>abc12345<br>',
    'password = "" or user = "ana12345"; token = """A token2 of ours."""',
    "password = None",
    'DB_PASSWORD=os.environ["X"]',
    "password=${VAR}; DB_PASSWORD=$DB_PASSWORD",
    "PASSWORD=changeme TOKEN=<your token> SECRET=***",
    "token = response.token2",
    "Client(token=s3client)",
    "connect('db', secret=oauth2Client, x=1); f(password=b64decode)",
    "Password: ********** and **token**: ***",
    "secret=settings.SECRET_KEY1",
    "password: str | None = None",
    "login(password=password1, api_key=api_key2)",
    "password: z.string().min(8)",
    '"forgotPassword": "Forgot your password?"',
    "const token = await getToken1(x)",
    "TOKEN=/run/secrets/token1",
    "MAX_TOKENS=100000 TOKEN_LIMIT=200000",
    "tokenizer=tokenizer1",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "API_KEY_FILE=/x/y1234567",
    "Tokens: 1,234 in, 567 out",
    "pass=the salt; compass = north12345; bypass: str = rule12345",
    "PWD=/home/ana OLDPWD=/home/ben; cwd = pwd = os.getcwd()",
    "def hash(password: str, pwd: bytes) -> str: pass",
    '("Authorization", "Ocp-Apim-Subscription-Key1", "DB_PASSWORD=[redacted: me]")',
    "Authorization: required for administrators only",
    'headers = {"Authorization": f"Bearer {token1}"}',
    'headers["Authorization"] = "Bearer " + token1',
    "Authorization: Bearer $TOKEN or ${TOKEN1} or <token> or YOUR_ACCESS_TOKEN_1",
    "Bearer authentication, bearer tokens1 and the standard-bearer",
    "https://user:password@host and postgres://postgres:postgres@localhost",
    'f"postgres://{user}:{password}@{host}" postgres://%s:%s@%s https://$A:$B@c',
    "https://plum.example:8080/@ana ssh://git@git.example/garden http://[::1]:80/a:b@c",
    'curl -u "$USER:$PASS" a; curl -u ana b; curl -u user:pass c; curl --url http://a:80/b',
    'curl -u ana:ana d; curl -u "ana:ana" e',
    "RUN curl https://plum.example\nRUN docker run -u ana:garden1 x; docker -u 1000:1000",
]


@pytest.mark.parametrize("text", [*INNOCENT, *NOT_SAID, *NO_SECRET])
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    """What begins like a key, what is said of passwords, code and placeholders."""
    assert redact(text) == text
    assert redact(json.dumps(text)) == json.dumps(text)


def test_secrets_are_chosen_by_name_and_length() -> None:
    environ = {
        "OPENAI_API_KEY": "12345678",
        "NEO4J_PASSWORD": "a-password",
        "AWS_SECRET_ACCESS_KEY": "abcdefgh",
        "GH_TOKEN": "short",
        "MAX_TOKENS": "100000000",
        "SSH_KEY": "/home/ana/.ssh/id",
        "KEYBOARD": "us-international",
        "NAME": "visible-value",
    }
    know(secrets_among(environ))
    assert redact(" ".join(environ.values())) == (
        "[redacted: OPENAI_API_KEY] [redacted: NEO4J_PASSWORD] [redacted: AWS_SECRET_ACCESS_KEY] "
        "short 100000000 /home/ana/.ssh/id us-international visible-value"
    )


def test_what_servers_are_given_is_a_secret_by_its_name_or_its_look() -> None:
    """Anything else is stored as it was said."""
    innocent = {
        "Content-Type": "application/json",
        "X-Region": "frankfurt",
        "NODE_OPTIONS": "--max-old-space-size=4096",
        "MODEL": "gpt-4.1-mini-2025-04-14",
        "DB_HOST": "db-01.example.internal",
        "ALLOWED": "/home/ana/py3projects2024/app",
        "BASE": "https://example.internal/v2beta1projects",
    }
    secret = {
        "Authorization": "Bearer correct-horse",
        "Cookie": "session=horse",
        "X-Api-Key": "battery-staple",
        "X-Own": "c0ffee5b-93d1-4ac9-8a8b-3f5a0d12e97b",
        "GARDEN": "gdn.9f8e7d6c5b4a39281706",
    }
    for part in ("env", "headers"):
        other = {"command": "x", part: {"Authorization": "Bearer another-horse"}}
        server = {"command": "x", part: innocent | secret}
        know(check_tree({"mcp": {"servers": {"x": server, "y": other}}}, "", "").passwords())
    said = "\n".join(innocent.values())
    assert redact(said) == said
    for each in (*secret.values(), "Bearer another-horse"):
        assert each not in redact(f"It is {each}, not more.")


_SIZES = [150_000, pytest.param(10_000_000, marks=pytest.mark.campaign)]
HOSTILE = {
    "words": "The quick brown fox jumps over the lazy dog. ",
    "all prefixes": " ".join(prefix for rule in RULES for prefix in rule.prefixes),
    "JWT starts": "eyJ",
    "JWT parts": "eyJaaaaaaaaaaaa.",
    "dashes": "sk-",
    "almost": "sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ",
    "assignments": 'password = "a1b2c3d4e5f6" ',
    "names": "password=token:SECRET=",
    "long values": "DB_PASSWORD=" + "a" * 1000,
    "headers": "Authorization: Bearer ",
    "addresses": "a://b:c",
    "logins": "curl -u a:b ",
    "sentences": "The password for it's **«(**'s ",
    "beside": "password a1!b-C2d pass ",
    "marks": "the password is " + "*" * 1000,
    "arguments": "f('a', password=a1bcdef, b('c', ",
    "login values": "curl -u" + " a:" * 300,
    "almost long enough": "hf_aaaaaaaaaaa ",
    "key starts": "-----BEGIN PRIVATE KEY-----",
    "key gaps": "-----BEGIN PRIVATE KEY-----" + " " * 1000,
    "key numbers": "-----BEGIN PRIVATE KEY-----" + "1\t" * 1000,
    "key lines": "-----BEGIN PRIVATE KEY-----\n" + ("A" * 64 + "\n") * 50,
}


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_a_large_text_takes_linear_time(unit: str, size: int) -> None:
    """Ten times a tenth, at most some more; what backtracks or starts over takes hours."""
    tenth_s = _cpu_seconds(unit * (size // 10 // len(unit)))
    assert _cpu_seconds(unit * (size // len(unit))) < max(1.5, 40 * tenth_s)


def _cpu_seconds(text: str) -> float:
    """What else runs on the machine adds nothing to it."""
    began = time.process_time()
    redact(text)
    return time.process_time() - began


def test_two_megabytes_of_a_program_take_little_time() -> None:
    """About a tenth of a second: the formats are looked for in a tenth of it."""
    program = "".join(
        path.read_text("utf-8")
        for path in sorted(Path(module.__file__).parent.rglob("*.py"))
        if path != Path(module.__file__)
    )
    assert len(program) > 2_000_000
    assert _cpu_seconds(program[:2_000_000]) < 0.6


@pytest.mark.parametrize("size", _SIZES)
def test_a_single_run_without_an_end(size: int) -> None:
    began = time.process_time()
    for start in ("sk-", "eyJ", "-----BEGIN PRIVATE KEY-----"):
        redact(start + "a" * size)
        redact(start + " " * size)
    assert time.process_time() - began < 60


def test_a_json_file_is_taken_apart_unless_a_secret_is_in_json_within_it() -> None:
    """Escapes beside a secret don't matter."""
    secret = "Xk29fjq2z7LmQw83hT0p"
    for text in (
        json.dumps({"run": f'curl -H "Authorization: Bearer {secret}" C:\\x'}, indent=2),
        json.dumps({"run": f'DB_PASS="{secret}" C:\\x.exe'}, indent=2),
    ):
        found = parted(text)
        assert found
        assert [each for _, each in found.secrets] == [secret]
    within = json.dumps({"client_secret": secret})
    for _ in range(3):
        within = json.dumps({"file": within})
    assert secret not in redact(within)
    assert parted(within) is None


def test_a_text_is_taken_apart_at_its_secrets_and_put_together_again() -> None:
    """Also where one stands in another, more than once, or beside what looks like a mark."""
    token = "ghp_" + "a1B2" * 9
    know({"MY_KEY": "Zq7-Zq7-Zq7", "MY_ADDRESS": f"x-{token}-y"})
    text = (
        f"[redacted: it] {token} x-{token}-y\n[redacted: {token}]{token}\udc80\n"
        f'DB_PASSWORD="is {token} Zq7-Zq7-Zq7 [redacted: me] 12"\n'
    )
    found = parted(text)
    assert found
    values = [value for _, value in found.secrets]

    def filled(secrets: list[str]) -> str:
        behind = zip(secrets, found.pieces[1:], strict=True)
        return found.pieces[0] + "".join(secret + piece for secret, piece in behind)

    assert filled(values) == text
    assert filled([f"[redacted: {kind}]" for kind, _ in found.secrets]) == redact(text)
    assert not any("a1B2" in piece or "Zq7" in piece for piece in found.pieces)
    assert f"x-{token}-y" in values
    assert parted(f"{text}\ud800") is None


def test_a_thread_that_redacts_never_misses_what_is_known_while_more_becomes_known() -> None:
    """As a server's key does when it starts, while a command prints."""
    secret = chars(WORD, 30)
    know({"FIRST": secret})
    left: list[object] = []
    over = threading.Event()

    def redacts() -> None:
        while not over.is_set():
            try:
                left.extend({redact(f"it is {secret}.")} - {"it is [redacted: FIRST]."})
            except RuntimeError as error:
                left.append(error)

    thread = threading.Thread(target=redacts)
    switches_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for number in range(300):
            know({"OTHER": f"{number}{secret[::-1]}"})
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(switches_s)
    assert left == []
