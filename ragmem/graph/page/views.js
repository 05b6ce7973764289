"use strict";
// The views that are lists: days, summaries, stories, memories, requests, numbers.

const nothing = (words) => p("nothing", state.found ? "No matches in this view." : words);
const words = (text, classes = "words") => (text ? el("div", { class: classes }, text) : null);
const badge = (text, classes = "") => (text ? el("span", { class: `badge ${classes}` }, text) : null);
const swatch = (classes, name) => el("span", {}, el("i", { class: `swatch ${classes}` }), name);
const isTurn = (node) => node.kind === "turn";

// --- days ---------------------------------------------------------------------------

function drawDays(view) {
  const days = new Map();
  for (const turn of shownNodes("turn")) put(days, dayOf(turn.time), turn);
  const bare = shownNodes("session").filter((node) => !from(node.id, "said in").some(isTurn));
  for (const session of bare) put(days, dayOf(session.time), session);
  const order = [...days.keys()].sort((a, b) => b - a);
  if (!order.length) return view.append(nothing("No days to show."));
  view.append(
    dayChart(order, days),
    rows(order, (day) => daySection(day, days.get(day)), 30),
  );
}

const isFailed = (turn) => turn.facts.failed > 0;
const changedBy = (turn) => [...new Set(to(turn.id, "changed"))];

function dayChart(order, days) {
  const shown = order.slice(0, 120).reverse();
  const counts = (holds) => shown.map((day) => days.get(day).filter(holds).length);
  return chart(
    "Turns a day",
    shown.map((day) => DAY.format(day)),
    [
      { name: "succeeded", classes: "turn", values: counts((each) => isTurn(each) && !isFailed(each)) },
      { name: "with failures", classes: "bad", values: counts(isFailed) },
    ],
  );
}

function daySection(day, list) {
  const sessions = new Map();
  for (const node of list) put(sessions, isTurn(node) ? node.session : node.id, node);
  const counts = `${count(sessions.size, "session")}, ${count(list.filter(isTurn).length, "turn")}`;
  return el(
    "section",
    { class: "day" },
    el("h2", {}, DAY.format(day), small(counts)),
    ...[...sessions].map(([id, own]) => sessionCard(nodes.get(id), own.filter(isTurn))),
  );
}

function bead(turn) {
  const wrote = changedBy(turn).length > 0;
  const [classes, sign] = isFailed(turn) ? ["bad", "✗"] : wrote ? ["changed", "✎"] : ["", ""];
  const attributes = {
    class: `bead ${classes}`,
    title: `${moment(turn.at)}: ${turn.label}`,
    "aria-label": `Turn ${turn.facts.index}: ${turn.label}`,
  };
  return button(attributes, () => go("days", turn.id), sign);
}

function sessionCard(session, turns) {
  const changed = [...new Set(turns.flatMap(changedBy))];
  const broken = turns.flatMap((turn) =>
    turn.facts.calls.filter((call) => call.failed).map((call) => [turn, call]),
  );
  return el(
    "article",
    { class: "card" },
    el("h3", {}, session ? opener(session) : "A session not on this page"),
    p(
      "beads",
      ...turns.slice(0, 200).map(bead),
      turns.length ? null : `${count(session?.facts.turns || 0, "turn")}, not on this page`,
    ),
    changed.length
      ? p(
          "about",
          el("b", {}, "Changed "),
          ...changed.slice(0, 12).map((file) => opener(file)),
          changed.length > 12 ? `and ${changed.length - 12} more` : null,
        )
      : null,
    ...broken.slice(0, 4).map(([turn, call]) => {
      const what = `${call.tool} ${short(call.arguments, 90)}`;
      const opens = button({ class: "link" }, () => go("days", turn.id), what);
      return p("about broken", el("b", { class: "failed" }, "✗ "), opens);
    }),
  );
}

// --- summaries ----------------------------------------------------------------------

function drawSummaries(view) {
  const sessions = data.nodes.filter((node) => node.kind === "session" && passes(node));
  const told = sessions.filter((node) => {
    const below = from(node.id, "said in");
    const has = node.facts.summary || below.some((each) => each.kind === "summary");
    return has && (isFound(node) || below.some(isFound));
  });
  if (!told.length)
    return view.append(
      nothing("No summaries yet. They are made in the background, once a session is long enough."),
    );
  view.append(
    p("hint", "From the summary of a session down to its turns: each line opens what it was made from."),
    rows(told, sessionTree),
  );
}

// Children are created when a branch is first opened.
function branch(classes, head, children, open = false) {
  const made = el("details", { class: classes, open: open ? "" : null }, el("summary", {}, head));
  const fill = () => made.open && made.childElementCount === 1 && made.append(...children().filter(Boolean));
  made.addEventListener("toggle", fill);
  if (open) fill();
  return made;
}

function sessionTree(session) {
  const own = from(session.id, "said in");
  const isLoose = (each) => !to(each.id, "summed up in").length;
  const tops = own
    .filter((each) => each.kind === "summary" && isLoose(each))
    .sort((a, b) => b.facts.level - a.facts.level || a.time - b.time);
  const loose = own.filter((each) => isTurn(each) && isLoose(each));
  const about = `${moment(session.at)}, ${count(session.facts.turns, "turn")}`;
  const made = branch(
    "tree",
    [glyph("session"), el("b", {}, session.label), small(about)],
    () => [
      words(session.facts.summary),
      ...tops.map(summaryTree),
      loose.length
        ? branch("tree", el("i", {}, `${count(loose.length, "turn")} not summarized yet`), () =>
            loose.map(turnLine),
          )
        : null,
    ],
    state.selected === session.id || nodes.get(state.selected)?.session === session.id,
  );
  made.dataset.id = session.id;
  return made;
}

function summaryTree(summary) {
  const f = summary.facts;
  const below = from(summary.id, "summed up in").sort((a, b) => a.time - b.time);
  const head = `Level ${f.level}: ${short(summary.label, 80)}`;
  return branch(
    "tree",
    [glyph("summary"), head, small(count(f.turns, "turn"))],
    () => [
      words(f.text),
      p(
        "about",
        ...f.topics.map((topic) => badge(topic)),
        f.extractive ? badge("excerpted from the turns, without a model") : null,
      ),
      f.findings.length ? el("ul", {}, ...f.findings.map((each) => el("li", {}, each))) : null,
      ...below.map((each) => (isTurn(each) ? turnLine(each) : summaryTree(each))),
    ],
    state.selected === summary.id,
  );
}

const turnLine = (turn) => p("line", opener(turn), small(moment(turn.at)));

// --- stories -------------------------------------------------------------------------

function drawStories(view) {
  const things = data.nodes
    .filter((node) => (node.kind === "file" || node.kind === "code") && passes(node))
    .map((node) => ({ node, turns: storyOf(node) }))
    .filter((each) => each.turns.length)
    .sort((a, b) => b.turns.length - a.turns.length || a.node.label.localeCompare(b.node.label));
  if (!things.length) return view.append(nothing("No files touched yet."));
  const chosen =
    things.find((each) => each.node.id === state.selected) ||
    things.find((each) => isFound(each.node)) ||
    things[0];
  const listed = things.filter((each) => isFound(each.node) || each === chosen);
  const entry = ({ node, turns }) =>
    button(
      { class: "entry", "aria-current": node === chosen.node ? "true" : null },
      () => go("stories", node.id),
      glyph(node.kind),
      el("span", {}, node.label),
      small(count(turns.length, "turn")),
    );
  const list = el("nav", { class: "list", "aria-label": "Files and functions" }, rows(listed, entry));
  view.append(el("div", { class: "split" }, list, story(chosen)));
}

// The turns linked with a file or a function, in order, with the kind of link.
function storyOf(node) {
  const hows = new Map();
  for (const [source, , how] of incoming.get(node.id) || []) {
    if (isTurn(nodes.get(source))) put(hows, source, how);
  }
  return [...hows]
    .map(([id, how]) => ({ turn: nodes.get(id), how }))
    .sort((a, b) => a.turn.time - b.turn.time);
}

const isChange = (how) => how === "changed" || how === "edited";

function story({ node, turns }) {
  const f = node.facts;
  const inside = from(node.id, "defined in");
  return el(
    "section",
    { class: "story" },
    el("h2", {}, glyph(node.kind), node.label),
    node.kind === "code"
      ? p("about", `${f.kind} in ${f.path}, lines ${f.lines}`, f.gone ? badge("no longer exists", "bad") : null)
      : null,
    words(f.signature, "words code"),
    words(f.docstring),
    inside.length
      ? p("about", el("b", {}, "Holds "), ...inside.slice(0, 12).map((each) => opener(each)))
      : null,
    rows(turns, ({ turn, how }) =>
      el(
        "article",
        { class: `card ${how.some(isChange) ? "changed" : ""}` },
        p(
          "about",
          moment(turn.at),
          ...how.map((each) => badge(each, isChange(each) ? "changed" : "")),
          nodes.get(turn.session) ? opener(nodes.get(turn.session)) : null,
        ),
        p("asked", opener(turn, short(turn.facts.asked, 300))),
        ...to(turn.id, "decided", "remembered").map((memory) =>
          p(
            "line",
            opener(memory, memory.facts.content),
            memory.facts.superseded ? badge("superseded") : null,
          ),
        ),
      ),
    ),
  );
}

// --- memories ---------------------------------------------------------------------------

function drawMemories(view) {
  const list = shownNodes("memory").sort((a, b) => b.time - a.time);
  if (!list.length) return view.append(nothing("No memories yet."));
  const current = list.filter((each) => !each.facts.superseded);
  const past = list.length - current.length;
  const where = past ? `, ${past} of them superseded: each is listed under the memory that replaced it` : "";
  view.append(p("hint", `${count(list.length, "memory", "memories")}${where}.`));
  const heads = [
    ...current,
    ...list.filter((each) => each.facts.superseded && !from(each.id, "supersedes").length),
  ];
  const listed = new Set([...heads, ...heads.flatMap(replacedBy)]);
  const hidden = list.filter((each) => !listed.has(each));
  const chosen = heads.findIndex((each) => each.id === state.selected);
  view.append(rows([...heads, ...hidden], memoryCard, Math.max(100, chosen + 1)));
}

function replacedBy(memory) {
  const seen = [];
  for (
    let wave = to(memory.id, "supersedes");
    wave.length;
    wave = wave.flatMap((each) => to(each.id, "supersedes"))
  ) {
    wave = wave.filter((each) => !seen.includes(each));
    seen.push(...wave);
  }
  return seen;
}

function memoryCard(memory) {
  const f = memory.facts;
  const before = replacedBy(memory);
  const past = (each) => {
    const time = `${moment(each.at)} – ${moment(each.facts.until)}`;
    return p("line past", opener(each, each.facts.content), small(time));
  };
  return el(
    "article",
    { class: `card memory-card ${f.superseded ? "past" : ""}`, "data-id": memory.id },
    p("asked", opener(memory, f.content)),
    p(
      "about",
      badge(f.kind, f.kind === "failure" ? "bad" : ""),
      badge(`by ${{ person: "you", model: "the model", tool: "files and tools" }[f.trust]}`),
      f.pinned ? badge("pinned", "changed") : null,
      f.superseded ? badge(`superseded ${moment(f.until)}`) : null,
      badge(dueText(memory)),
      ...f.subjects.map((each) => badge(each, "subject")),
      small(moment(memory.at)),
    ),
    ...evidenceOf(memory),
    before.length
      ? branch("tree", `Replaced ${count(before.length, "other")}`, () => before.map(past))
      : null,
  );
}

// A day: a deadline's time is noon only so that it is that day everywhere.
function dueText({ time, facts: { due, kind } }) {
  const day = due && DAY.format(new Date(due));
  if (kind === "deadline" && day) return `due ${day}`;
  return day && day !== DAY.format(time) ? `on ${day}` : "";
}

function evidenceOf(memory) {
  return memory.facts.evidence.map((place) => {
    const turn = nodes.get(place.turn);
    const where = [moment(place.at), place.tool, place.path].filter(Boolean).join(" · ");
    const source = turn
      ? button({ class: "link" }, () => go(state.view, turn.id), where || "the turn")
      : small(where);
    return el("blockquote", {}, place.quote || "(no text was kept)", " ", source);
  });
}

// --- requests -----------------------------------------------------------------------------

function drawRequests(view) {
  const known = shownNodes("turn")
    .filter((turn) => turn.facts.request)
    .sort((a, b) => b.time - a.time);
  const unknown = data.nodes.filter((node) => isTurn(node) && !node.facts.request).length;
  if (unknown)
    view.append(
      p(
        "hint",
        `The requests of ${count(unknown, "turn")} are not known here: they are kept for the newest turns, on the machine that sent them.`,
      ),
    );
  if (!known.length)
    return view.append(nothing("No request is known yet: they are kept from the next turn on."));
  const names = sectionNames(known);
  view.append(p("legend", ...names.map((name, i) => swatch(`s${i % 8}`, name))));
  const most = Math.max(...known.map(sizeOfRequest));
  view.append(rows(known, (turn) => requestCard(turn, names, most)));
}

const sizeOfRequest = (turn) => turn.facts.request.sections.reduce((sum, each) => sum + each.chars, 0);
const sectionNames = (turns) => [
  ...new Set(turns.flatMap((turn) => turn.facts.request.sections.map((each) => each.name))),
];

function requestCard(turn, names, most) {
  const { sections, most: limit, fallback } = turn.facts.request;
  let x = 0;
  const bars = sections
    .filter((each) => each.chars)
    .map((each) => {
      const width = (100 * each.chars) / most;
      const made = svg(
        "rect",
        { class: `s${names.indexOf(each.name) % 8}`, x, y: 0, width, height: 10 },
        svg("title", {}, `${each.name}: ${digits(each.chars)} characters`),
      );
      x += width;
      return made;
    });
  const away = fallback ? ", without the store, which could not answer" : "";
  return el(
    "article",
    { class: "card", "data-id": turn.id },
    p("asked", opener(turn), small(moment(turn.at))),
    svg("svg", { class: "strip", viewBox: "0 0 100 10", preserveAspectRatio: "none" }, ...bars),
    branch(
      "tree",
      `${digits(sizeOfRequest(turn))} characters of at most ${digits(limit)}${away}`,
      () => [requestTable(sections)],
      state.selected === turn.id,
    ),
  );
}

function requestTable(sections) {
  const names = ["Section", "Characters", "Budget", "Left out", "What and why"];
  const number = (value) => el("td", { class: "number" }, digits(value));
  const line = (item) => {
    const ids = ["turn", "summary", "memory"].map((kind) => `${kind}=${item.id}`);
    const node = ids.map((id) => nodes.get(id)).find(Boolean);
    return p("line", node ? opener(node) : null, small(`${item.why}, ${digits(item.chars)} characters`));
  };
  const row = (section) =>
    el(
      "tr",
      {},
      el("th", {}, section.name),
      number(section.chars),
      section.budget ? number(section.budget) : el("td", {}, "–"),
      number(section.dropped),
      el("td", {}, ...section.items.slice(0, 40).map(line)),
    );
  const head = el("tr", {}, ...names.map((name) => el("th", {}, name)));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...sections.map(row)));
}

// --- numbers ------------------------------------------------------------------------------

const PARTS = 1000;
const upTo = (places) => (value) => value.toLocaleString("en", { maximumFractionDigits: places });

// Stacked bars, one per day, with the numbers in a title each, and in a table below.
function chart(title, names, series, unit = upTo(4)) {
  const sums = names.map((_, i) => series.reduce((sum, each) => sum + (each.values[i] || 0), 0));
  const most = Math.max(...sums, 0);
  const wide = PARTS / Math.max(names.length, 12);
  const bars = names.flatMap((name, i) => {
    let y = 100;
    return series
      .filter((each) => each.values[i])
      .map((each) => {
        const height = (100 * each.values[i]) / (most || 1);
        y -= height;
        return svg(
          "rect",
          { class: each.classes, x: i * wide + wide * 0.08, y, width: wide * 0.84, height },
          svg("title", {}, `${name}: ${unit(each.values[i])} ${series.length > 1 ? each.name : ""}`),
        );
      });
  });
  const [first, last] = [names[0] || "", names.length > 1 ? names.at(-1) : ""];
  const attributes = {
    viewBox: `0 0 ${PARTS} 100`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${title}, ${first} to ${names.at(-1) || ""}`,
  };
  return el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, el("b", {}, title), small(`most: ${unit(most)}`)),
    svg("svg", attributes, ...bars),
    el("div", { class: "ends" }, small(first), small(last)),
    series.length > 1 ? p("legend", ...series.map((each) => swatch(each.classes, each.name))) : null,
  );
}

function drawNumbers(view) {
  const days = data.numbers;
  const names = days.map((each) => DAY.format(new Date(`${each.day}T12:00`)));
  const of = (key) => days.map((each) => each[key] || 0);
  const share = (part, whole) => days.map((each) => (each[whole] ? (100 * each[part]) / each[whole] : 0));
  const cached = share("cached_tokens", "input_tokens");
  const percent = (value) => `${value.toFixed(0)} %`;
  const ms = (value) => `${upTo(1)(value)} ms`;
  const both = (own, background) => [
    { name: "of the conversation", classes: "turn", values: of(own) },
    { name: "of background work", classes: "memory", values: of(background) },
  ];
  const one = (classes, values) => [{ name: "", classes, values }];
  const charts = [
    ["Tokens a day", both("tokens", "background_tokens")],
    ["Dollars a day", both("cost_usd", "background_cost_usd"), (value) => `$${value.toFixed(4)}`],
    ["Tokens that came from the provider's cache", one("code", cached), percent],
    ["Searches that found something", one("session", share("found", "searches")), percent],
    ["Search, at the 95th percentile", one("file", of("search_p95_ms")), ms],
    ["Building a context, at the 95th percentile", one("file", of("context_p95_ms")), ms],
    ["Storing a turn, at the 95th percentile", one("file", of("store_p95_ms")), ms],
  ];
  const measured = days.length ? charts.map(([title, ...others]) => chart(title, names, ...others)) : [];
  view.append(el("div", { class: "charts" }, ...measured, ...growth(), ...requestGrowth()));
  if (!view.firstChild.childElementCount) view.append(nothing("Nothing was measured yet."));
}

function growth() {
  const kinds = new Map();
  for (const node of inTime) {
    if (isTurn(node) || node.kind === "memory") put(kinds, dayOf(node.time), node.kind);
  }
  const days = [...kinds.keys()];
  if (!days.length) return [];
  const names = days.map((day) => DAY.format(day));
  const total = (kind) => {
    let sum = 0;
    return days.map((day) => (sum += kinds.get(day).filter((each) => each === kind).length));
  };
  return [
    chart("Turns remembered, of this page", names, [{ name: "", classes: "turn", values: total("turn") }]),
    chart("Memories, of this page", names, [{ name: "", classes: "memory", values: total("memory") }]),
  ];
}

function requestGrowth() {
  const known = inTime.filter((node) => node.facts.request);
  if (!known.length) return [];
  const values = (name) =>
    known.map((turn) => turn.facts.request.sections.find((each) => each.name === name)?.chars || 0);
  const series = sectionNames(known).map((name, i) => ({ name, classes: `s${i % 8}`, values: values(name) }));
  const names = known.map((turn) => moment(turn.at));
  return [chart("Characters of each request, by section", names, series)];
}
