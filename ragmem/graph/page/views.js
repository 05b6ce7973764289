"use strict";
// The views that are lists: days, summaries, stories, memories, requests, numbers.

function nothing(words) {
  return el("p", { class: "nothing" }, state.found ? "No matches in this view." : words);
}

function words(text, classes = "words") {
  return text ? el("div", { class: classes }, text) : null;
}

function badge(text, classes = "") {
  return text ? el("span", { class: `badge ${classes}` }, text) : null;
}

// --- days ---------------------------------------------------------------------------

function drawDays(view) {
  const turns = shownNodes("turn");
  const days = new Map();
  for (const turn of turns) put(days, dayOf(turn.time), turn);
  const bare = shownNodes("session").filter(
    (node) => !from(node.id, "said in").some((each) => each.kind === "turn"),
  );
  for (const session of bare) put(days, dayOf(session.time), session);
  const order = [...days.keys()].sort((a, b) => b - a);
  if (!order.length) return view.append(nothing("No days to show."));
  view.append(
    dayChart(order, days),
    rows(order, (day) => daySection(day, days.get(day)), 30),
  );
}

const isFailed = (turn) => turn.facts.failed > 0;
const changedBy = (turn) =>
  [...new Set([...to(turn.id, "changed")].map((node) => node.id))].map((id) => nodes.get(id));

function dayChart(order, days) {
  const shown = order.slice(0, 120).reverse();
  return chart(
    "Turns per day",
    shown.map((day) => DAY.format(day)),
    [
      {
        name: "succeeded",
        classes: "turn",
        values: shown.map(
          (day) => days.get(day).filter((each) => each.kind === "turn" && !isFailed(each)).length,
        ),
      },
      {
        name: "with failures",
        classes: "bad",
        values: shown.map((day) => days.get(day).filter(isFailed).length),
      },
    ],
  );
}

function daySection(day, list) {
  const sessions = new Map();
  for (const node of list) put(sessions, node.kind === "session" ? node.id : node.session, node);
  return el(
    "section",
    { class: "day" },
    el(
      "h2",
      {},
      DAY.format(day),
      el(
        "small",
        {},
        `${count(sessions.size, "session")}, ${count(list.filter((each) => each.kind === "turn").length, "turn")}`,
      ),
    ),
    ...[...sessions].map(([id, own]) =>
      sessionCard(
        nodes.get(id),
        own.filter((each) => each.kind === "turn"),
      ),
    ),
  );
}

function sessionCard(session, turns) {
  const changed = new Map();
  for (const turn of turns) for (const file of changedBy(turn)) changed.set(file.id, file);
  const broken = turns.flatMap((turn) =>
    turn.facts.calls.filter((call) => call.failed).map((call) => [turn, call]),
  );
  return el(
    "article",
    { class: "card" },
    el("h3", {}, session ? opener(session) : "A session not on this page"),
    el(
      "p",
      { class: "beads" },
      ...turns.slice(0, 200).map((turn) =>
        el(
          "button",
          {
            type: "button",
            class: `bead ${isFailed(turn) ? "bad" : changedBy(turn).length ? "changed" : ""}`,
            title: `${moment(turn.at)}: ${turn.label}`,
            "aria-label": `Turn ${turn.facts.index}: ${turn.label}`,
            onclick: () => go("days", turn.id),
          },
          isFailed(turn) ? "✗" : changedBy(turn).length ? "✎" : "",
        ),
      ),
      turns.length ? null : `${count(session?.facts.turns || 0, "turn")}, not on this page`,
    ),
    changed.size
      ? el(
          "p",
          { class: "about" },
          el("b", {}, "Changed "),
          ...[...changed.values()].slice(0, 12).map((file) => opener(file)),
          changed.size > 12 ? `and ${changed.size - 12} more` : null,
        )
      : null,
    ...broken
      .slice(0, 4)
      .map(([turn, call]) =>
        el(
          "p",
          { class: "about broken" },
          el("b", { class: "failed" }, "✗ "),
          el(
            "button",
            { type: "button", class: "link", onclick: () => go("days", turn.id) },
            `${call.tool} ${short(call.arguments, 90)}`,
          ),
        ),
      ),
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
    el(
      "p",
      { class: "hint" },
      "From the summary of a session down to its turns: each line opens what it was made from.",
    ),
    rows(told, sessionTree),
  );
}

// Children are created when a branch is first opened.
function branch(classes, head, children, open = false) {
  const made = el("details", { class: classes, open: open ? "" : null }, el("summary", {}, head));
  const fill = () => made.open && made.childElementCount === 1 && made.append(...children());
  made.addEventListener("toggle", fill);
  if (open) fill();
  return made;
}

function sessionTree(session) {
  const own = from(session.id, "said in");
  const summaries = own.filter((each) => each.kind === "summary");
  const tops = summaries
    .filter((each) => !to(each.id, "summed up in").length)
    .sort((a, b) => b.facts.level - a.facts.level || a.time - b.time);
  const loose = own.filter((each) => each.kind === "turn" && !to(each.id, "summed up in").length);
  const made = branch(
    "tree",
    [
      glyph("session"),
      el("b", {}, session.label),
      el("small", {}, `${moment(session.at)}, ${count(session.facts.turns, "turn")}`),
    ],
    () =>
      [
        words(session.facts.summary),
        ...tops.map(summaryTree),
        loose.length
          ? branch("tree", el("i", {}, `${count(loose.length, "turn")} not summarized yet`), () =>
              loose.map(turnLine),
            )
          : null,
      ].filter(Boolean),
    state.selected === session.id || nodes.get(state.selected)?.session === session.id,
  );
  made.dataset.id = session.id;
  return made;
}

function summaryTree(summary) {
  const below = from(summary.id, "summed up in").sort((a, b) => a.time - b.time);
  const head = [
    glyph("summary"),
    `Level ${summary.facts.level}: ${short(summary.label, 80)}`,
    el("small", {}, count(summary.facts.turns, "turn")),
  ];
  return branch(
    "tree",
    head,
    () =>
      [
        words(summary.facts.text),
        el(
          "p",
          { class: "about" },
          ...summary.facts.topics.map((topic) => badge(topic)),
          summary.facts.extractive ? badge("excerpted from the turns, without a model") : null,
        ),
        summary.facts.findings.length
          ? el("ul", {}, ...summary.facts.findings.map((each) => el("li", {}, each)))
          : null,
        ...below.map((each) => (each.kind === "turn" ? turnLine(each) : summaryTree(each))),
      ].filter(Boolean),
    state.selected === summary.id,
  );
}

const turnLine = (turn) => el("p", { class: "line" }, opener(turn), el("small", {}, moment(turn.at)));

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
  const list = el(
    "nav",
    { class: "list", "aria-label": "Files and functions" },
    rows(
      things.filter((each) => isFound(each.node) || each === chosen),
      ({ node, turns }) =>
        el(
          "button",
          {
            type: "button",
            class: "entry",
            "aria-current": node === chosen.node ? "true" : null,
            onclick: () => go("stories", node.id),
          },
          glyph(node.kind),
          el("span", {}, node.label),
          el("small", {}, count(turns.length, "turn")),
        ),
    ),
  );
  view.append(el("div", { class: "split" }, list, story(chosen)));
}

// The turns linked with a file or a function, in order, with the kind of link.
function storyOf(node) {
  const hows = new Map();
  for (const [source, , how] of incoming.get(node.id) || []) {
    if (nodes.get(source).kind === "turn") put(hows, source, how);
  }
  return [...hows]
    .map(([id, how]) => ({ turn: nodes.get(id), how }))
    .sort((a, b) => a.turn.time - b.turn.time);
}

function story({ node, turns }) {
  const inside = from(node.id, "defined in");
  return el(
    "section",
    { class: "story" },
    el("h2", {}, glyph(node.kind), node.label),
    node.kind === "code"
      ? el(
          "p",
          { class: "about" },
          `${node.facts.kind} in ${node.facts.path}, lines ${node.facts.lines}`,
          node.facts.gone ? badge("no longer exists", "bad") : null,
        )
      : null,
    words(node.facts.signature, "words code"),
    words(node.facts.docstring),
    inside.length
      ? el("p", { class: "about" }, el("b", {}, "Holds "), ...inside.slice(0, 12).map((each) => opener(each)))
      : null,
    rows(turns, ({ turn, how }) =>
      el(
        "article",
        { class: `card ${how.some((each) => each === "changed" || each === "edited") ? "changed" : ""}` },
        el(
          "p",
          { class: "about" },
          moment(turn.at),
          ...how.map((each) => badge(each, each === "changed" || each === "edited" ? "changed" : "")),
          nodes.get(turn.session) ? opener(nodes.get(turn.session)) : null,
        ),
        el("p", { class: "asked" }, opener(turn, short(turn.facts.asked, 300))),
        ...to(turn.id, "decided", "remembered").map((memory) =>
          el(
            "p",
            { class: "line" },
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
  view.append(
    el(
      "p",
      { class: "hint" },
      `${count(list.length, "memory", "memories")}, ${list.length - current.length} of them superseded: each is listed under the memory that replaced it.`,
    ),
  );
  const heads = [
    ...current,
    ...list.filter((each) => each.facts.superseded && !from(each.id, "supersedes").length),
  ];
  const hidden = list.filter(
    (each) => !heads.includes(each) && !heads.some((head) => replacedBy(head).includes(each)),
  );
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
  return el(
    "article",
    { class: `card memory-card ${f.superseded ? "past" : ""}`, "data-id": memory.id },
    el("p", { class: "asked" }, opener(memory, f.content)),
    el(
      "p",
      { class: "about" },
      badge(f.kind, f.kind === "failure" ? "bad" : ""),
      badge(`by ${{ person: "you", model: "the model", tool: "files and tools" }[f.trust]}`),
      f.pinned ? badge("pinned", "changed") : null,
      f.superseded ? badge(`superseded ${moment(f.until)}`) : null,
      f.due ? badge(`${f.kind === "deadline" ? "due" : "on"} ${moment(f.due)}`) : null,
      ...f.subjects.map((each) => badge(each, "subject")),
      el("small", {}, moment(memory.at)),
    ),
    ...evidenceOf(memory),
    before.length
      ? branch("tree", `Replaced ${count(before.length, "other")}`, () =>
          before.map((each) =>
            el(
              "p",
              { class: "line past" },
              opener(each, each.facts.content),
              el("small", {}, `${moment(each.at)} – ${moment(each.facts.until)}`),
            ),
          ),
        )
      : null,
  );
}

function evidenceOf(memory) {
  return memory.facts.evidence.map((place) => {
    const turn = nodes.get(place.turn);
    const where = [moment(place.at), place.tool, place.path].filter(Boolean).join(" · ");
    return el(
      "blockquote",
      {},
      place.quote || "(no text was kept)",
      " ",
      turn
        ? el(
            "button",
            { type: "button", class: "link", onclick: () => go(state.view, turn.id) },
            where || "the turn",
          )
        : el("small", {}, where),
    );
  });
}

// --- requests -----------------------------------------------------------------------------

function drawRequests(view) {
  const known = shownNodes("turn")
    .filter((turn) => turn.facts.request)
    .sort((a, b) => b.time - a.time);
  const unknown =
    data.nodes.filter((node) => node.kind === "turn").length -
    data.nodes.filter((node) => node.facts.request).length;
  if (unknown)
    view.append(
      el(
        "p",
        { class: "hint" },
        `The requests of ${count(unknown, "turn")} are not known here: they are kept for the newest turns, on the machine that sent them.`,
      ),
    );
  if (!known.length)
    return view.append(nothing("No request is known yet: they are kept from the next turn on."));
  const names = [...new Set(known.flatMap((turn) => turn.facts.request.sections.map((each) => each.name)))];
  view.append(
    el(
      "p",
      { class: "legend" },
      ...names.map((name, i) => el("span", {}, el("i", { class: `swatch s${i % 8}` }), name)),
    ),
  );
  const most = Math.max(...known.map((turn) => sizeOfRequest(turn)));
  view.append(rows(known, (turn) => requestCard(turn, names, most)));
}

const sizeOfRequest = (turn) => turn.facts.request.sections.reduce((sum, each) => sum + each.chars, 0);

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
        svg("title", {}, `${each.name}: ${each.chars.toLocaleString("en")} characters`),
      );
      x += width;
      return made;
    });
  return el(
    "article",
    { class: "card", "data-id": turn.id },
    el("p", { class: "asked" }, opener(turn), el("small", {}, moment(turn.at))),
    svg("svg", { class: "strip", viewBox: "0 0 100 10", preserveAspectRatio: "none" }, ...bars),
    branch(
      "tree",
      `${sizeOfRequest(turn).toLocaleString("en")} characters of at most ${limit.toLocaleString("en")}${fallback ? ", without the store, which could not answer" : ""}`,
      () => [requestTable(sections)],
      state.selected === turn.id,
    ),
  );
}

function requestTable(sections) {
  const number = (value) => el("td", { class: "number" }, value.toLocaleString("en"));
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...["Section", "Characters", "Budget", "Left out", "What and why"].map((name) => el("th", {}, name)),
      ),
    ),
    el(
      "tbody",
      {},
      ...sections.map((section) =>
        el(
          "tr",
          {},
          el("th", {}, section.name),
          number(section.chars),
          section.budget ? number(section.budget) : el("td", {}, "–"),
          number(section.dropped),
          el(
            "td",
            {},
            ...section.items.slice(0, 40).map((item) => {
              const node = ["turn", "summary", "memory"]
                .map((kind) => nodes.get(`${kind}=${item.id}`))
                .find(Boolean);
              return el(
                "p",
                { class: "line" },
                node ? opener(node) : null,
                el("small", {}, `${item.why}, ${item.chars.toLocaleString("en")} characters`),
              );
            }),
          ),
        ),
      ),
    ),
  );
}

// --- numbers ------------------------------------------------------------------------------

const PARTS = 1000;

// Stacked bars, one per day, with the numbers in a title each, and in a table below.
function chart(
  title,
  names,
  series,
  unit = (value) => value.toLocaleString("en", { maximumFractionDigits: 4 }),
) {
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
  return el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, el("b", {}, title), el("small", {}, `most: ${unit(most)}`)),
    svg(
      "svg",
      {
        viewBox: `0 0 ${PARTS} 100`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${title}, ${names[0] || ""} to ${names.at(-1) || ""}`,
      },
      ...bars,
    ),
    el(
      "div",
      { class: "ends" },
      el("small", {}, names[0] || ""),
      el("small", {}, names.length > 1 ? names.at(-1) : ""),
    ),
    series.length > 1
      ? el(
          "p",
          { class: "legend" },
          ...series.map((each) => el("span", {}, el("i", { class: `swatch ${each.classes}` }), each.name)),
        )
      : null,
  );
}

function drawNumbers(view) {
  const days = data.numbers;
  const names = days.map((each) => each.day);
  const of = (key) => days.map((each) => each[key] || 0);
  const share = (part, whole) => days.map((each) => (each[whole] ? (100 * each[part]) / each[whole] : 0));
  const percent = (value) => `${value.toFixed(0)} %`;
  const ms = (value) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })} ms`;
  const charts = days.length
    ? [
        chart("Tokens a day", names, [
          { name: "of the conversation", classes: "turn", values: of("tokens") },
          { name: "of background work", classes: "memory", values: of("background_tokens") },
        ]),
        chart(
          "Dollars a day",
          names,
          [
            { name: "of the conversation", classes: "turn", values: of("cost_usd") },
            { name: "of background work", classes: "memory", values: of("background_cost_usd") },
          ],
          (value) => `$${value.toFixed(4)}`,
        ),
        chart(
          "Tokens that came from the provider's cache",
          names,
          [{ name: "", classes: "code", values: share("cached_tokens", "input_tokens") }],
          percent,
        ),
        chart(
          "Searches that found something",
          names,
          [{ name: "", classes: "session", values: share("found", "searches") }],
          percent,
        ),
        chart(
          "Search, at the 95th percentile",
          names,
          [{ name: "", classes: "file", values: of("search_p95_ms") }],
          ms,
        ),
        chart(
          "Building a context, at the 95th percentile",
          names,
          [{ name: "", classes: "file", values: of("context_p95_ms") }],
          ms,
        ),
        chart(
          "Storing a turn, at the 95th percentile",
          names,
          [{ name: "", classes: "file", values: of("store_p95_ms") }],
          ms,
        ),
      ]
    : [];
  view.append(el("div", { class: "charts" }, ...charts, ...growth(), ...requestGrowth()));
  if (!view.firstChild.childElementCount) view.append(nothing("Nothing was measured yet."));
}

function growth() {
  const sums = new Map();
  for (const node of inTime) {
    if (node.kind !== "turn" && node.kind !== "memory") continue;
    const day = dayOf(node.time);
    const known = sums.get(day) || { turn: 0, memory: 0 };
    known[node.kind] += 1;
    sums.set(day, known);
  }
  const days = [...sums.keys()];
  if (!days.length) return [];
  const total = (kind) => {
    let sum = 0;
    return days.map((day) => (sum += sums.get(day)[kind]));
  };
  const names = days.map((day) => DAY.format(day));
  return [
    chart("Turns remembered, of this page", names, [{ name: "", classes: "turn", values: total("turn") }]),
    chart("Memories, of this page", names, [{ name: "", classes: "memory", values: total("memory") }]),
  ];
}

function requestGrowth() {
  const known = inTime.filter((node) => node.facts.request);
  if (!known.length) return [];
  const names = [...new Set(known.flatMap((turn) => turn.facts.request.sections.map((each) => each.name)))];
  const values = (name) =>
    known.map((turn) => turn.facts.request.sections.find((each) => each.name === name)?.chars || 0);
  return [
    chart(
      "Characters of each request, by section",
      known.map((turn) => moment(turn.at)),
      names.map((name, i) => ({ name, classes: `s${i % 8}`, values: values(name) })),
    ),
  ];
}
