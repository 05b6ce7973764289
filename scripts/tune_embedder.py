"""Train the embedder further: which turn answers a question, and which prompts need none.

`scripts/train_embedder.py` gives texts of other languages the vectors of their translations. Here
the result learns from scenes (tests/embedder/data/scenes): five turns of a project, questions in
other words with the turns that answer them, and prompts about something else. A question shall be
nearer to its turns than to others of its scene, of other scenes and of other languages (InfoNCE),
by the same cosine in each language and for each subject (a sigmoid loss, as of Zhai et al., 2023).
Sections of translated handbooks near their titles, and commits near their messages, keep what the
model knew; the model at the beginning is the teacher. The table of words stays as it is.

    python scripts/tune_embedder.py --start WEIGHTS --sections FILE --related FILE OUT

A line of `--sections` is JSON: a title and a text, by language. A line of `--related` is JSON, as
of `train_embedder.py --english`. WEIGHTS and OUT are safetensors files with BERT's names. The
shipped weights are the mean of six runs (docs/measurements.md).
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from train_embedder import Model, distance, encoded, load, open_tokenizer, padded, save

DATA = Path(__file__).parent.parent / "tests" / "embedder" / "data"
TURNS = 5
SCENES, SECTIONS, TRANSLATED, PROMPTS = 48, 384, 128, 64
"""Examples in a batch."""
TEMPERATURE, SCALE, TARGET = 0.05, 20.0, 0.38
"""Of the contrast; and of the sigmoid, which is one half at the cosine TARGET."""
CHUNK = 256

Tokens = np.ndarray


class Texts:
    """What is drawn from, as token ids."""

    def __init__(self, tokenizer: Tokenizer, sections: Path, related: Path) -> None:
        def tokens(texts: Sequence[str]) -> list[Tokens]:
            return encoded(tokenizer, list(texts))

        self.scenes = [
            (
                tokens(scene["turns"]),
                tokens([question for question, _ in scene["questions"]]),
                [answers for _, answers in scene["questions"]],
                tokens(scene["off"]),
            )
            for scene in _lines(*sorted((DATA / "scenes").glob("*.jsonl")))
            if scene["off"]
        ]
        prompts = list(_lines(*sorted((DATA / "prompts").glob("*.jsonl"))))
        self.general = tokens([text for line in prompts for text in line["general"]])
        self.bound = tokens([text for line in prompts for text in line["bound"]])
        found = list(_lines(sections))
        flat = tokens([text for by in found for pair in by.values() for text in pair])
        pairs = iter(zip(flat[::2], flat[1::2], strict=True))
        self.sections = [dict(zip(by, islice(pairs, len(by)), strict=True)) for by in found]
        others = [(line[-2], line[-1]) for line in _lines(related)]
        self.related = list(zip(*(tokens(side) for side in zip(*others, strict=True)), strict=True))


class Batch:
    """Texts of one step, side by side, and which belong together."""

    def __init__(self, texts: Texts, scenes: Sequence[int], rng: np.random.Generator) -> None:
        drawn = [texts.scenes[place] for place in scenes]
        self.questions = [question for _, questions, _, _ in drawn for question in questions]
        self.off = [off[rng.integers(len(off))] for *_, off in drawn]
        self.turns = [turn for turns, *_ in drawn for turn in turns]
        self.answers = np.zeros((len(self.questions), len(self.turns)), bool)
        self.scene = np.zeros_like(self.answers)
        row = 0
        for place, (_, _, answers, _) in enumerate(drawn):
            for own in answers:
                self.answers[row, [TURNS * place + turn for turn in own]] = True
                self.scene[row, TURNS * place : TURNS * (place + 1)] = True
                row += 1
        self.titles, self.bodies = list[Tokens](), list[Tokens]()
        for by in _some(texts.sections, SECTIONS // 2, rng):
            languages = list(by)
            own = languages[rng.integers(len(languages))]
            other = languages[rng.integers(len(languages))] if rng.random() < 0.3 else own
            self.titles.append(by[own][0])
            self.bodies.append(by[other][1])
        # Neighbours in the file are of one repository: hard to tell apart.
        first = int(rng.integers(len(texts.related)))
        for at in range(first, first + SECTIONS // 2):
            title, body = texts.related[at % len(texts.related)]
            self.titles.append(title)
            self.bodies.append(body)
        self.english, self.translated = list[Tokens](), list[Tokens]()
        known = [by for by in _some(texts.sections, 2 * TRANSLATED, rng) if "en" in by]
        for by in [by for by in known if len(by) > 1][:TRANSLATED]:
            others = [language for language in by if language != "en"]
            side = int(rng.random() < 0.7)
            self.english.append(by["en"][side])
            self.translated.append(by[others[rng.integers(len(others))]][side])
        self.general = _some(texts.general, PROMPTS, rng)
        self.bound = _some(texts.bound, PROMPTS, rng)


def _some(things: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    return [things[place] for place in rng.integers(len(things), size=count)]


def _lines(*files: Path) -> Iterator[Any]:
    for file in files:
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def vectors(model: Model, *parts: Sequence[Tokens]) -> list[torch.Tensor]:
    """Return unit vectors (texts, 384) of each part; texts of like length run together."""
    rows = [row for part in parts for row in part]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    done = []
    for start in range(0, len(order), CHUNK):
        ids, lengths = padded([rows[place] for place in order[start : start + CHUNK]])
        done.append(model(ids.cuda(), lengths.cuda()))
    back = torch.empty(len(rows), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(rows))
    return list(torch.cat(done)[back.cuda()].split([len(part) for part in parts]))


def contrast(near: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the loss of telling the right columns of each row from the others (InfoNCE)."""
    logits = near / TEMPERATURE
    chosen = torch.logsumexp(logits.masked_fill(~right, -1e4), 1)
    return (torch.logsumexp(logits, 1) - chosen)[right.any(1)].mean()


def step_loss(
    model: Model, teacher: Model, head: nn.Linear, batch: Batch, *, calibrated: float, apart: float
) -> torch.Tensor:
    """Return the loss of a batch; `calibrated` and `apart` weigh the sigmoid and the prompts."""
    with torch.no_grad():
        was_body, was_english, was_turn = vectors(teacher, batch.bodies, batch.english, batch.turns)
    asked, turns, titles, bodies, english, translated, general, bound = vectors(
        model, [*batch.questions, *batch.off], batch.turns, batch.titles, batch.bodies,
        batch.english, batch.translated, batch.general, batch.bound,
    )  # fmt: skip
    answers, scene = (torch.from_numpy(each).cuda() for each in (batch.answers, batch.scene))
    count, passages = len(batch.questions), torch.cat([turns, bodies[:CHUNK]])
    near = asked @ passages.T
    right = torch.zeros_like(near, dtype=torch.bool)
    right[:count, : len(turns)] = answers
    to_turns = asked[:count] @ turns.T
    loss = contrast(near, right) + 0.5 * contrast(to_turns.T, answers.T)
    loss += 0.5 * contrast(to_turns.masked_fill(~scene, -500.0), answers)
    each = -functional.logsigmoid((right.float() * 2 - 1) * (near - TARGET) * SCALE)
    loss += calibrated * ((each * right).sum() / right.sum() + (each * ~right).sum() / len(near))
    same = torch.eye(len(titles), dtype=torch.bool, device="cuda")
    to_bodies = titles @ bodies.T
    loss += 0.15 * (contrast(to_bodies, same) + contrast(to_bodies.T, same))
    loss += 10 * distance(bodies, was_body) + 3 * distance(turns, was_turn)
    loss += 10 * (distance(english, was_english) + distance(translated, was_english))
    said = head(torch.cat([asked, general, bound]))[:, 0] * 8
    is_bound = torch.zeros_like(said)
    is_bound[:count] = is_bound[len(said) - len(bound) :] = 1
    share = torch.where(is_bound > 0, 0.5 / is_bound.sum(), 0.5 / (1 - is_bound).sum())
    told = functional.binary_cross_entropy_with_logits(said.float(), is_bound, reduction="none")
    far = functional.softplus((general @ turns.T - TARGET) * SCALE).sum(1).mean()
    return loss + apart * ((told * share).sum() + 0.05 * far)


def tune(options: argparse.Namespace) -> Model:
    """Train for a number of seconds and return the model."""
    teacher = load(options.start).cuda().eval().requires_grad_(False)
    model, head = load(options.start, options.dropout).cuda(), nn.Linear(384, 1).cuda()
    model.words.weight.requires_grad_(False)
    texts = Texts(open_tokenizer(), options.sections, options.related)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(
        [*trained, *head.parameters()], lr=1.0, betas=(0.9, 0.98), weight_decay=0.01
    )
    rng, order = np.random.default_rng(options.seed), list[int]()
    began, step = time.monotonic(), 0
    while (part := (time.monotonic() - began) / options.seconds) < 1:
        rate = options.rate * min(1, (step + 1) / 100)
        optimizer.param_groups[0]["lr"] = rate * max(0.03, 0.5 + 0.5 * math.cos(math.pi * part))
        if len(order) < SCENES:
            order = rng.permutation(len(texts.scenes)).tolist()
        scenes, order = order[:SCENES], order[SCENES:]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_loss(
                model, teacher, head, Batch(texts, scenes, rng),
                calibrated=options.calibrated, apart=options.apart,
            )  # fmt: skip
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 100 == 1:
            print(f"{step}: loss {loss.item():.3f}", flush=True)
    return model


def main() -> None:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description="Train the shipped embedder further.")
    parser.add_argument("--start", type=Path, required=True, help="weights to go on from")
    parser.add_argument("--sections", type=Path, required=True)
    parser.add_argument("--related", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=130)
    parser.add_argument("--rate", type=float, default=2.5e-4, help="the highest learning rate")
    parser.add_argument("--calibrated", type=float, default=0.2, help="weight of the sigmoid")
    parser.add_argument("--apart", type=float, default=0.15, help="weight of the prompts")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    save([tune(options)], options.out)


if __name__ == "__main__":
    main()
