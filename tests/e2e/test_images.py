"""Pictures in a prompt: shown to a model that sees, named to one that does not, never stored."""

import os
import struct

import pytest

from ragmem.messages import ImagePart
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 64, 48) + os.urandom(4_000)
SHOWN = ImagePart("image/png", PNG)


@pytest.fixture(autouse=True)
def reads(ragmem: Ragmem, server: LLMServer) -> None:
    (ragmem.project / "shot one.png").write_bytes(PNG)
    (ragmem.project / "notes.txt").write_text("a ramp\n")
    read = Answer(tools=[Call("read_file", {"path": "notes.txt"})])
    server.extend(read, Answer("A ramp."), Answer("As I said."))


def test_a_picture_goes_to_the_model_and_stays_out_of_the_memory(
    ragmem: Ragmem, server: LLMServer
) -> None:
    """It is shown in each call of its turn; later turns know its name, size and hash."""
    assert ragmem.run("ask", 'What is on @"shot one.png"?').out == "A ramp.\n"
    first, second = (request.body["messages"] for request in server.requests)
    for messages in (first, second):
        prompt = next(m for m in messages if m["role"] == "user")
        assert "What is on" in prompt["content"][0]["text"]
        assert prompt["content"][1] == {"type": "image_url", "image_url": {"url": SHOWN.data_url}}
    assert second[: len(first)] == first
    assert ragmem.run("ask", "-c", "Are you sure?").out == "As I said.\n"
    third = str(server.requests[2].body["messages"])
    assert "image_url" not in third
    assert "shot one.png is a PNG image, 4,024 bytes" in third
    files = [path for path in ragmem.home.rglob("*") if path.is_file()]
    raw, text = PNG[100:140], SHOWN.base64[200:240].encode()
    assert [path for path in files if raw in (data := path.read_bytes()) or text in data] == []


def test_a_model_that_can_not_see_is_told_the_name(ragmem: Ragmem, server: LLMServer) -> None:
    model = "openai/gpt-3.5-turbo"
    env = {"RAGMEM_API_BASE": "", "OPENAI_API_KEY": "k-1", "OPENAI_BASE_URL": server.url}
    done = ragmem.ok("ask", "-m", model, 'What is on @"shot one.png"?', env=env)
    assert f"{model} can't see images: it gets only their names" in done.err
    told = str(server.requests[0].body["messages"])
    assert "image_url" not in told
    assert "shot one.png is a PNG image" in told


def test_what_is_no_picture_too_large_or_too_much_is_said(
    ragmem: Ragmem, server: LLMServer
) -> None:
    (ragmem.project / "huge.png").write_bytes(PNG + bytes(4_000_000))
    (ragmem.project / "text.png").write_text("only words")
    names = [f"{number}.png" for number in range(5)]
    for name in names:
        (ragmem.project / name).write_bytes(PNG + bytes(3_500_000))
    done = ragmem.ok("ask", "What is on @huge.png and @text.png?")
    assert "@huge.png was not read" in done.err
    assert "Make it smaller" in done.err
    told = str(server.requests[0].body["messages"])
    assert "image_url" not in told
    assert "only words" in told
    done = ragmem.ok("ask", f"Compare {' '.join(f'@{name}' for name in names)}")
    assert "@4.png was not read: the images of a prompt may have 14 MB together" in done.err
    assert "@2.png" not in done.err
    sent = server.requests[-1].body["messages"]
    assert str([part["type"] for part in sent[-1]["content"]]).count("image_url") == 3
