"""The index asked."""

from tests.fakes.hash_embedder import HashEmbedder
from tests.index.trees import CLOCK, PROJECT_ID


async def test_lines_are_those_of_the_disk(tree):
    async with tree.indexed() as index:
        (hit, *_) = await index.search("parse_duration", semantic=False)
        assert (hit.start_line, hit.text.rstrip()) == (1, CLOCK.rstrip())
        tree.write("app/clock.py", "import os\n\n\n" + CLOCK.replace("60", "3600"))
        (hit, *_) = await index.search("parse_duration", semantic=False)
        assert hit.start_line == 4
        assert "* 3600" in hit.text
        tree.write("app/clock.py", CLOCK.replace("parse_duration", "parse_span"))
        assert all(hit.path != "app/clock.py" for hit in await index.search("parse_duration"))
        (tree.root / "app/clock.py").unlink()
        assert all(hit.path != "app/clock.py" for hit in await index.search("parse_duration"))


async def test_a_file_that_became_a_link_is_not_read(tree, tmp_path):
    outside = tmp_path / "outside.py"
    outside.write_text(CLOCK.replace("Seconds", "Secret seconds"))
    async with tree.indexed() as index:
        (tree.root / "app/clock.py").unlink()
        (tree.root / "app/clock.py").symlink_to(outside)
        assert all(hit.path != "app/clock.py" for hit in await index.search("parse_duration"))
        (tree.root / "app").rename(tmp_path / "app")
        (tree.root / "app").symlink_to(tmp_path / "app")
        assert await index.search("AuthService", semantic=False) == []
        done = await index.refresh()
        assert done.removed == ("app/auth.py", "app/clock.py")


async def test_no_half_of_a_secret_is_left(tree):
    """A key of many lines is gone before the file is cut; what follows keeps its line."""
    body = [f"{n:03}" + "aB3" * 20 for n in range(70)]
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    words = [f"giraffe line {n}" for n in range(30)]
    tree.write("notes.txt", "\n".join([*words, begin, *body, end, *words, "wombat"]) + "\n")
    async with tree.indexed() as index:
        hits = await index.search("giraffe wombat", semantic=False)
        assert len(hits) > 1
        assert not any(line in hit.text for hit in hits for line in body)
        (last,) = [hit for hit in hits if "wombat" in hit.text]
        assert last.start_line + last.text.split("\n").index("wombat") == 30 + 72 + 30 + 1
        tree.write("app/late.ts", f"import x from 'https://tok:{KEY}@host/x.js'\n{KEY}()\n")
        await index.refresh()
    for file in tree.database.parent.iterdir():
        kept = file.read_bytes().lower()
        assert not [line for line in [*body, KEY] if line.lower().encode() in kept]


KEY = "sk-ant-api03-" + "a1B2" * 12


async def test_scopes_by_place_and_by_name(tree):
    async with tree.index() as index:
        assert await index.scopes_at("app/auth.py", [(1, 7)]) == []
        await index.refresh()

        async def at(*lines: tuple[int, int]) -> list[str]:
            return [each.qualified_name for each in await index.scopes_at("app/auth.py", lines)]

        assert await at((8, 8)) == ["AuthService.validate"]
        assert await at((9, 13), (18, 18)) == [
            "AuthService", "AuthService.validate", "AuthService.lookup", "login",
        ]  # fmt: skip
        assert await at((5, 5)) == ["AuthService"]
        assert await at((500, 900)) == []
        for number in range(6):
            tree.write(f"many/m{number}.py", "def common():\n    pass\n")
        await index.refresh()
        found = await index.scopes_named(
            ["authservice.VALIDATE", "validate", "common", "Service.validate", "login", "", "nope"]
        )
        names = {name: [each.scope.qualified_name for each in each] for name, each in found.items()}
        assert names == {
            "authservice.VALIDATE": ["AuthService.validate"],
            "validate": ["AuthService.validate"],
            "login": ["login"],
        }
        (login,) = found["login"]
        assert (login.project_id, login.path, login.defined) == (PROJECT_ID, "app/auth.py", True)
        assert login.scope.scope_id == tree.ids()["app/auth.py", "login"]


async def test_vectors_follow(tree):
    embedder = HashEmbedder()
    shown = []
    async with tree.index(embedder=embedder) as index:
        assert await index.embed()
        await index.refresh()
        waiting = (await index.status()).without_vectors
        assert waiting > 5
        # However short the time is, it comes on by a batch.
        assert await index.embed(limit_s=0, show=lambda done, of: shown.append((done, of)))
        assert shown[-1] == (waiting, waiting)
        assert (await index.status()).without_vectors == 0
        embedder.seen.clear()
        hits = await index.search("whether a token is still good")
        assert [kind for kind, _ in embedder.seen] == ["query"]
        assert any(hit.similarity is not None for hit in hits)
        embedder.failing = True
        assert await index.search("whether a token is still good")
        embedder.failing = False
        embedder.delay_s = 30
        asked = "some other question of a token"
        assert await index.search(asked, vector=await index.vector_of(asked, 0.05))
        embedder.delay_s = 0
        (tree.root / "app/clock.py").unlink()
        await index.refresh()
        tree.write("app/clock.py", CLOCK)
        await index.refresh()
        assert (await index.status()).without_vectors == 0
    async with tree.index(embedder=HashEmbedder(32, model_id="other")) as index:
        assert await index.search("token")
        assert await index.embed()
        assert any(hit.similarity is not None for hit in await index.search("a token"))


async def test_an_embedder_leaves_the_vectors_of_one_that_has_taken_its_place(tree):
    """As an open chat of an older ragmem does: else each would embed all after the other's edit."""
    old, new = HashEmbedder(model_id="old"), HashEmbedder(model_id="new", replaces=("old",))
    async with tree.index(embedder=old) as before, tree.index(embedder=new) as after:
        await before.refresh()
        assert await before.embed()
        assert await after.embed()
        for number, (index, other) in enumerate([(before, after), (after, before)] * 2):
            new.seen.clear()
            tree.write("app/edited.py", f"def edited_{number}():\n    return {number}\n")
            await index.refresh()
            await other.embed()
            await index.embed()
            assert len(new.seen) == 1
            assert await after.embed()
        assert (await after.status()).without_vectors == 0
        assert await before.search("what was edited")
        # Also of one that is started only later, and knows no better.
        async with tree.index(embedder=old) as later:
            assert await later.embed()
        assert await after.embed()
        assert not await before.embed()
        assert (await after.status()).without_vectors == 0
