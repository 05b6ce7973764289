"use strict";
// The page around the views: tabs, search, filters, the details of the selected node, the keyboard.

const VIEWS = {
  map: ["Map", drawMap],
  days: ["Days", drawDays],
  summaries: ["Summaries", drawSummaries],
  stories: ["Stories", drawStories],
  memories: ["Memories", drawMemories],
  requests: ["Requests", drawRequests],
  numbers: ["Numbers", drawNumbers],
};
const by = (id) => document.getElementById(id);

let drawnAs = "";
let filtered = 0;

// A new selection changes the panel only; a list keeps its state, with its open branches.
function redraw() {
  for (const tab of by("tabs").children) {
    tab.toggleAttribute("data-on", tab.dataset.view === state.view);
    tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
  }
  const view = by("view");
  const now = `${state.view} ${filtered}`;
  if (now !== drawnAs || state.view === "map" || state.view === "stories") {
    const scrolled = view.querySelector(".list")?.scrollTop || 0;
    view.replaceChildren();
    view.className = state.view;
    VIEWS[state.view][1](view);
    if (now === drawnAs && view.querySelector(".list")) view.querySelector(".list").scrollTop = scrolled;
    else view.scrollTop = 0;
  }
  for (const card of view.querySelectorAll(".rows > [data-id]")) {
    const chosen = [
      state.selected,
      state.view === "summaries" && nodes.get(state.selected)?.session,
    ].includes(card.dataset.id);
    card.toggleAttribute("aria-current", chosen);
    if (chosen && now !== drawnAs) card.scrollIntoView({ block: "center" });
  }
  drawnAs = now;
  drawPanel();
  drawFound();
  document.body.dataset.view = state.view;
}

// --- details of the selected node ------------------------------------------------------

function drawPanel() {
  const node = nodes.get(state.selected);
  const panel = by("panel");
  const was = panel.hidden;
  // A story already shows everything about its file.
  const told = state.view === "stories" && (node?.kind === "file" || node?.kind === "code");
  panel.hidden = !node || told;
  panel.replaceChildren();
  if (was !== panel.hidden && map.canvas?.isConnected && map.drawn) render();
  if (panel.hidden) return;
  const f = node.facts;
  const views = {
    session: "summaries",
    turn: "requests",
    summary: "summaries",
    file: "stories",
    code: "stories",
    memory: "memories",
  };
  const closes = { class: "close", "aria-label": "Close (Esc)", title: "Close (Esc)" };
  panel.append(
    p(
      "kind",
      glyph(node.kind),
      KINDS[node.kind][0].replace("Memories", "Memory").replace("Summaries", "Summary").replace(/s$/, ""),
      button(closes, () => go(state.view), "×"),
    ),
    el("h2", {}, node.label || "(empty)"),
    p("about", moment(node.at), ...BADGES[node.kind](f)),
    p(
      "about",
      ...["map", views[node.kind]]
        .filter((view) => view !== state.view && !(view === "requests" && !f.request))
        .map((view) => button({}, () => go(view, node.id), `See in ${VIEWS[view][0]}`)),
    ),
    ...panelWords(node),
    ...panelLinks(node),
  );
  panel.scrollTop = 0;
}

const BADGES = {
  turn: (f) => [
    badge(f.status === "completed" ? "" : f.status, "bad"),
    badge(f.model),
    badge(f["tokens in"] ? `${digits(f["tokens in"])} tokens in, ${digits(f["tokens out"] || 0)} out` : ""),
    badge(f.cost ? `$${f.cost.toFixed(4)}` : ""),
  ],
  session: (f) => [
    badge(count(f.turns, "turn")),
    badge(f.folder),
    badge(f.status === "archived" ? "archived" : ""),
    ...f.tags.map((tag) => badge(tag, "subject")),
  ],
  memory: (f) => [
    badge(f.kind),
    badge(f.trust),
    badge(f.pinned ? "pinned" : "", "changed"),
    badge(f.superseded ? "superseded" : "", "bad"),
  ],
  code: (f) => [badge(f.kind), badge(f.path), badge(`lines ${f.lines}`)],
  summary: (f) => [badge(`level ${f.level}`), badge(count(f.turns, "turn"))],
  file: () => [],
};

function panelWords(node) {
  const f = node.facts;
  const head = (name, text, classes) => (text ? [el("h3", {}, name), words(text, classes)] : []);
  return [
    ...head("Asked", f.asked, "words asked"),
    ...head("Answered", f.answered),
    ...(f.calls?.length
      ? [el("h3", {}, count(f.calls.length, "tool call")), ...f.calls.map(callDetails)]
      : []),
    ...head("Digest", f.summary),
    ...head("Summary", f.text),
    ...head("Memory", f.content),
    ...(f.evidence?.length ? [el("h3", {}, "Where it comes from"), ...evidenceOf(node)] : []),
    ...head("Signature", f.signature, "words code"),
    ...head("Docstring", f.docstring),
  ];
}

function callDetails(call) {
  const sign = el("span", { class: call.failed ? "failed" : "well" }, call.failed ? "✗ " : "● ");
  return branch("call", [sign, el("b", {}, call.tool), " ", short(call.arguments, 120)], () => [
    words(call.arguments, "words code"),
    words(call.error, "words code failed"),
    words(call.result, "words code"),
  ]);
}

function panelLinks(node) {
  const groups = new Map();
  for (const [, target, kind] of outgoing.get(node.id) || []) put(groups, kind, target);
  for (const [source, , kind] of incoming.get(node.id) || []) put(groups, `${kind} ←`, source);
  return [...groups].map(([kind, ids]) => {
    const names = {
      "said in ←": "Said in it",
      "changed ←": "Changed by",
      "read ←": "Read by",
      "found ←": "Found by",
      "edited ←": "Edited by",
      "named ←": "Named by",
      "defined in ←": "Defines",
      "remembered ←": "Remembered from",
      "decided ←": "Decided in",
      "supersedes ←": "Superseded by",
      "summed up in ←": "Sums up",
      "forked from ←": "Forks",
    };
    const list = ids.map((id) => nodes.get(id)).sort((a, b) => a.time - b.time);
    const name = names[kind] || kind[0].toUpperCase() + kind.slice(1);
    return el(
      "section",
      { class: "links" },
      el("h3", {}, name, small(` ${digits(list.length)}`)),
      rows(list, (each) => p("line", opener(each)), 25),
    );
  });
}

// --- search and filters ------------------------------------------------------------------

function drawFound() {
  const told = by("found");
  const list = by("hits");
  list.replaceChildren();
  list.hidden = !state.found || !by("search").matches(":focus-within");
  told.textContent = state.found ? count(state.found.size, "hit") : "";
  if (!state.found) return;
  const hits = [...state.found]
    .map((id) => nodes.get(id))
    .sort((a, b) => b.time - a.time)
    .slice(0, 40);
  list.append(...hits.map(turnLine));
  if (!hits.length) list.append(p("nothing", "No matches."));
}

let typing = 0;

function typed() {
  clearTimeout(typing);
  typing = setTimeout(refilter, 120);
}

function drawFilters() {
  const counts = {};
  for (const node of data.nodes) counts[node.kind] = (counts[node.kind] || 0) + 1;
  const kinds = Object.entries(KINDS).map(([kind, [name]]) => {
    const toggle = (event) => {
      state.kinds.has(kind) ? state.kinds.delete(kind) : state.kinds.add(kind);
      event.currentTarget.setAttribute("aria-pressed", String(state.kinds.has(kind)));
      refilter();
    };
    const title = `Show or hide: ${name}`;
    const attributes = { class: "chip", "data-kind": kind, "aria-pressed": "true", title };
    return button(attributes, toggle, glyph(kind), name, small(digits(counts[kind] || 0)));
  });
  const onchange = (set) => (event) => {
    set(event.target.value);
    refilter();
  };
  const date = (name, set) =>
    el("input", { type: "date", "aria-label": name, title: name, onchange: onchange(set) });
  const midnight = (day) => new Date(`${day}T00:00`).getTime();
  const since = date("From this day", (day) => (state.from = day ? midnight(day) : 0));
  const until = date("To this day", (day) => (state.to = day ? midnight(day) + 864e5 : Infinity));
  const people = { "": "anyone", person: "you", model: "the model", tool: "files and tools" };
  const trust = el(
    "select",
    { id: "trust", onchange: onchange((value) => (state.trust = value)) },
    ...Object.entries(people).map(([value, name]) => el("option", { value }, name)),
  );
  const labels = { "from ": since, "to ": until, "memories by ": trust };
  by("filters").append(...kinds, ...Object.entries(labels).map((each) => el("label", {}, ...each)));
}

function refilter() {
  filtered += 1;
  search(by("q").value);
  redraw();
}

// --- the keyboard --------------------------------------------------------------------------

const STEP = 60;
const KEYS = {
  "+": () => zoom(1.3),
  "=": () => zoom(1.3),
  "-": () => zoom(1 / 1.3),
  0: () => {
    map.moved = false;
    fit();
  },
  ArrowLeft: () => pan(STEP, 0),
  ArrowRight: () => pan(-STEP, 0),
  ArrowUp: () => pan(0, STEP),
  ArrowDown: () => pan(0, -STEP),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (by("help").open) return;
    if (by("q").value) {
      by("q").value = "";
      refilter();
    } else go(state.view);
    document.activeElement?.blur();
    return;
  }
  if (event.target.matches("input, select, textarea")) return;
  const view = Object.keys(VIEWS)[Number(event.key) - 1];
  if (event.key === "/") by("q").focus();
  else if (event.key === "?") by("help").showModal();
  else if (view) go(view, state.selected);
  else if (state.view === "map" && KEYS[event.key] && !event.target.closest?.("#panel")) KEYS[event.key]();
  else return;
  event.preventDefault();
}

// --- start -------------------------------------------------------------------------------------

function begin() {
  const hasNodes = data.nodes.length > 0;
  by("title").textContent = data.title;
  by("made").textContent =
    `${hasNodes ? `${count(data.nodes.length, "node")}, ${count(data.edges.length, "line")}, ` : ""}${data.store}, made ${moment(data.made_at)}`;
  for (const [view, [name]] of Object.entries(VIEWS)) {
    if (!hasNodes && view !== "numbers") continue;
    by("tabs").append(button({ role: "tab", "data-view": view }, () => go(view, state.selected), name));
  }
  if (hasNodes) drawFilters();
  else {
    by("search").hidden = by("filters").hidden = true;
    state.view = "numbers";
  }
  by("left-out").append(...data.left_out.map((each) => el("p", {}, "Not here: ", each)));
  by("q").addEventListener("input", typed);
  by("search").addEventListener("focusin", () => (by("hits").hidden = !state.found));
  document.addEventListener("pointerdown", (event) => {
    if (!by("search").contains(event.target)) by("hits").hidden = true;
  });
  by("hits").addEventListener("click", () => {
    by("hits").hidden = true;
    document.activeElement?.blur();
  });
  by("ask").addEventListener("click", () => by("help").showModal());
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", arrive);
  arrive();
  document.body.dataset.ready = String(Math.round(performance.now()));
}

begin();
