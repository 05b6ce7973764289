"""Train all-MiniLM-L6-v2 to give a sentence in another language the vector of its translation.

The recipe of Reimers and Gurevych (Making Monolingual Sentence Embeddings Multilingual, 2020): the
original model, which knows English, embeds the English side of a translated pair; the copy in
training learns to give both sides that vector. Texts of English and code keep theirs. Needs torch,
a GPU and a few minutes; ragmem needs none of them. What the shipped file was trained on is in
docs/embeddings.md.

    python scripts/train_embedder.py --translated FILE --english FILE --seconds 250 OUT
    … --start OUT --related --seconds 200 OUT2     further, and commit messages near their diffs
    … --average OUT OUT2 OUT3 FINAL                the mean of several, which is better than each
    python scripts/tune_embedder.py …              further, on what answers what
    scripts/build_embedder FINAL                   write the file that is shipped

A line of `--translated` is a source, an English text, and `language=text` for each translation,
with tabs between. A line of `--english` is JSON: a kind, and two texts that belong together.
OUT is a safetensors file with BERT's names.
"""

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from build_embedder import LAYERS, read_safetensors, wheel
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

CLS, SEP, MOST_TOKENS = 101, 102, 254
BATCH = 1024
SHARES = {"tatoeba": 2.0, "wesnoth": 2.0, "pydocs": 1.5, "tldr": 1.5, "lohelp": 1.2, "loui": 0.5}
"""How often a source is drawn: whole sentences more often than labels of buttons."""
DRAWN = 0.7
"""The same for sources that are not listed."""
LONG = 0.4
"""The share of examples made of several neighbouring lines, which teach longer passages."""


class Layer(nn.Module):
    """A layer of BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(384, 384) for _ in range(4))
        self.inner, self.outer = nn.Linear(384, 1536), nn.Linear(1536, 384)
        self.first, self.second = (nn.LayerNorm(384, eps=1e-12) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor, dropout: float) -> torch.Tensor:
        """Return the next hidden states, of the same shape (texts, tokens, 384)."""

        def dropped(part: torch.Tensor) -> torch.Tensor:
            return functional.dropout(part, dropout, training=dropout > 0)

        texts, tokens, _ = x.shape
        parts = (self.query(x), self.key(x), self.value(x))
        heads = [part.view(texts, tokens, 12, 32).transpose(1, 2) for part in parts]
        seen = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        x = self.first(x + dropped(self.out(seen.transpose(1, 2).reshape(texts, tokens, 384))))
        return self.second(x + dropped(self.outer(functional.gelu(self.inner(x)))))


class Model(nn.Module):
    """all-MiniLM-L6-v2: BERT, the mean over the tokens, a unit vector."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.words, self.places = nn.Embedding(30522, 384), nn.Embedding(256, 384)
        self.norm = nn.LayerNorm(384, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (texts, 384) of padded token ids (texts, tokens)."""
        there = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, there[:, None, None, :], self.dropout)
        share = there[:, :, None].to(x.dtype) / lengths[:, None, None]
        return functional.normalize((x * share).sum(1).float(), dim=-1)

    def named(self) -> dict[str, torch.Tensor]:
        """Return the parameters by BERT's names; positions hold the type of token 0, too."""
        found = {"embeddings.word_embeddings.weight": self.words.weight}
        found["embeddings.position_embeddings.weight"] = self.places.weight
        modules: list[tuple[str, nn.Module]] = [("embeddings.LayerNorm", self.norm)]
        for index, layer in enumerate(self.layers):
            own = f"encoder.layer.{index}"
            modules += [(f"{own}.attention.self.{n}", layer.get_submodule(n)) for n in _SELF]
            modules += [(f"{own}.{name}", layer.get_submodule(n)) for name, n in _REST.items()]
        for name, module in modules:
            found |= {f"{name}.{kind}": value for kind, value in module.named_parameters()}
        return found


_SELF = ("query", "key", "value")
_REST = {
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "first",
    "intermediate.dense": "inner",
    "output.dense": "outer",
    "output.LayerNorm": "second",
}


def load(path: Path, dropout: float = 0.0) -> Model:
    """Return the model of a safetensors file."""
    weights = dict(read_safetensors(path.read_bytes()))
    places = weights["embeddings.position_embeddings.weight"][:256]
    if (kinds := weights.get("embeddings.token_type_embeddings.weight")) is not None:
        places = places + kinds[0]
    weights["embeddings.position_embeddings.weight"] = places
    model = Model(dropout)
    with torch.no_grad():
        for name, value in model.named().items():
            value.copy_(torch.from_numpy(weights[name].copy()))
    return model


class Examples(torch.utils.data.IterableDataset[tuple[torch.Tensor, ...]]):
    """Endless batches: English and translated texts, then pairs of English and code."""

    def __init__(
        self, translated: Path, english: Path, tokenizer: Tokenizer, related: bool
    ) -> None:
        self._related = related
        self._sources, self._english, self._rows = list[str](), list[str](), list[int]()
        texts, languages = list[str](), list[str]()
        for line in translated.read_text("utf-8").splitlines():
            source, text, *others = line.split("\t")
            for other in others:
                language, _, said = other.partition("=")
                languages.append(language)
                texts.append(said)
                self._rows.append(len(self._english))
            self._sources.append(source)
            self._english.append(text)
        pairs = [json.loads(line) for line in english.read_text("utf-8").splitlines()]
        self._languages = languages
        self._ids = encoded(tokenizer, self._english)
        self._other_ids = encoded(tokenizer, texts)
        self._pairs = [encoded(tokenizer, [pair[side] for pair in pairs]) for side in (1, 2)]
        self._places: dict[str, dict[int, int]] = defaultdict(dict)
        for place, (row, language) in enumerate(zip(self._rows, languages, strict=True)):
            self._places[language][row] = place
        weights = np.array([SHARES.get(self._sources[row], DRAWN) for row in self._rows])
        total = {name: weights[list(own.values())].sum() for name, own in self._places.items()}
        # Small languages are drawn somewhat more often than they occur.
        weights *= [(max(total.values()) / total[language]) ** 0.5 for language in languages]
        self._up_to = np.cumsum(weights / weights.sum())

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        worker = torch.utils.data.get_worker_info()
        rng = np.random.default_rng(worker.seed if worker else 0)
        while True:
            drawn = [self._example(rng) for _ in range(BATCH * 8)]
            # Texts of like length together, so that little is padded.
            drawn.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
            for start in BATCH * rng.permutation(8):
                part = drawn[start : start + BATCH]
                count = len(self._pairs[0])
                if self._related:
                    # Neighbours in the file are of one repository: hard to tell apart.
                    own = (rng.integers(count) + np.arange(BATCH // 4)) % count
                else:
                    own = rng.integers(count, size=BATCH // 8)
                sides = [[pair[side] for pair in part] for side in (0, 1)]
                sides += [[texts[place] for place in own] for texts in self._pairs]
                yield tuple(tensor for side in sides for tensor in padded(side))

    def _example(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        place = min(int(np.searchsorted(self._up_to, rng.random())), len(self._rows) - 1)
        row, own = self._rows[place], self._places[self._languages[place]]
        rows = [row]
        if rng.random() < LONG:
            following = range(row + 1, min(row + 12, len(self._english)))
            same = [r for r in following if self._sources[r] == self._sources[row] and r in own]
            rows += same[: rng.integers(1, 7)]
        sides = [np.concatenate([self._ids[r] for r in rows])]
        sides.append(np.concatenate([self._other_ids[own[r]] for r in rows]))
        if max(map(len, sides)) > MOST_TOKENS:
            # Cut, one side would lose what the other still tells.
            sides = [self._ids[row], self._other_ids[place]]
        return sides[0], sides[1]


def open_tokenizer() -> Tokenizer:
    """Return the model's tokenizer, which neither cuts nor pads."""
    tokenizer = Tokenizer.from_file(str(wheel() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encoded(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Return the token ids of texts, without special tokens, as many as the model reads."""
    found = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [np.array(each.ids[:MOST_TOKENS], np.int64) for each in found]


def padded(texts: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids with special tokens, of one length, and the lengths without padding."""
    lengths = np.array([len(text) + 2 for text in texts])
    ids = np.zeros((len(texts), -(-lengths.max() // 16) * 16), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text) + 2] = [CLS, *text, SEP]
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def train(options: argparse.Namespace) -> Model:
    """Train for a number of seconds and return the model."""
    source = wheel()
    teacher = load(source / "model.safetensors").cuda().eval().requires_grad_(False)
    student = load(options.start or source / "model.safetensors").cuda()
    tokenizer = open_tokenizer()
    examples = Examples(options.translated, options.english, tokenizer, options.related)
    batches = iter(torch.utils.data.DataLoader(examples, batch_size=None, num_workers=14))
    optimizer = torch.optim.AdamW(
        student.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    began, step = time.monotonic(), 0
    while (part := (time.monotonic() - began) / options.seconds) < 1:
        rate = options.rate * min(1, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * part))
        optimizer.param_groups[0]["lr"] = max(rate, options.rate * 0.03)
        tensors = [tensor.cuda(non_blocking=True) for tensor in next(batches)]
        sides = list(zip(tensors[::2], tensors[1::2], strict=True))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                right = [teacher(*sides[place]) for place in (0, 2, 3)]
            made = [student(*side) for side in sides]
        loss = 10 * (distance(made[0], right[0]) + distance(made[1], right[0]))
        loss += 3.5 * (distance(made[2], right[1]) + distance(made[3], right[2]))
        loss += 0.3 * _contrast(made[1], right[0])
        if options.related:
            loss += 0.25 * _contrast(made[2], made[3])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 200 == 1:
            print(f"{step}: loss {loss.item():.3f}", flush=True)
    return student


def distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the mean of one minus the cosine of unit vectors, row by row."""
    return (1 - (one * other).sum(-1)).mean()


def _contrast(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the loss of telling each text's partner from the others of the batch (InfoNCE)."""
    near = one @ other.T / 0.05
    same = torch.arange(len(one), device=one.device)
    return (functional.cross_entropy(near, same) + functional.cross_entropy(near.T, same)) / 2


def main() -> None:
    """Train, or average what was trained, and write the weights."""
    parser = argparse.ArgumentParser(description="Train the shipped embedder.")
    parser.add_argument("--translated", type=Path)
    parser.add_argument("--english", type=Path)
    parser.add_argument("--seconds", type=float, default=250)
    parser.add_argument("--rate", type=float, default=4e-4, help="the highest learning rate")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--related", action="store_true", help="draw pairs of --english together")
    parser.add_argument("--average", type=Path, nargs="+", help="weights to average instead")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    models = [load(each) for each in options.average] if options.average else [train(options)]
    save(models, options.out)


def save(models: Sequence[Model], out: Path) -> None:
    """Write the mean of the models' weights."""
    states = [model.named() for model in models]
    mean = {
        name: torch.stack([state[name].cpu() for state in states]).mean(0) for name in states[0]
    }
    save_file({name: value.detach().numpy() for name, value in mean.items()}, out)


if __name__ == "__main__":
    main()
