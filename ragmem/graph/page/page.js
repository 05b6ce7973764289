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
  panel.append(
    el(
      "p",
      { class: "kind" },
      glyph(node.kind),
      KINDS[node.kind][0].replace("Memories", "Memory").replace("Summaries", "Summary").replace(/s$/, ""),
      el(
        "button",
        {
          type: "button",
          class: "close",
          "aria-label": "Close (Esc)",
          title: "Close (Esc)",
          onclick: () => go(state.view),
        },
        "×",
      ),
    ),
    el("h2", {}, node.label || "(empty)"),
    el("p", { class: "about" }, moment(node.at), ...panelBadges(node)),
    el(
      "p",
      { class: "about" },
      ...["map", views[node.kind]]
        .filter((view) => view !== state.view && !(view === "requests" && !f.request))
        .map((view) =>
          el("button", { type: "button", onclick: () => go(view, node.id) }, `See in ${VIEWS[view][0]}`),
        ),
    ),
    ...panelWords(node),
    ...panelLinks(node),
  );
  panel.scrollTop = 0;
}

function panelBadges(node) {
  const f = node.facts;
  switch (node.kind) {
    case "turn":
      return [
        badge(f.status === "completed" ? "" : f.status, "bad"),
        badge(f.model),
        badge(
          f["tokens in"]
            ? `${f["tokens in"].toLocaleString("en")} tokens in, ${(f["tokens out"] || 0).toLocaleString("en")} out`
            : "",
        ),
        badge(f.cost ? `$${f.cost.toFixed(4)}` : ""),
      ];
    case "session":
      return [
        badge(count(f.turns, "turn")),
        badge(f.folder),
        badge(f.status === "archived" ? "archived" : ""),
        ...f.tags.map((tag) => badge(tag, "subject")),
      ];
    case "memory":
      return [
        badge(f.kind),
        badge(f.trust),
        badge(f.pinned ? "pinned" : "", "changed"),
        badge(f.superseded ? "superseded" : "", "bad"),
      ];
    case "code":
      return [badge(f.kind), badge(f.path), badge(`lines ${f.lines}`)];
    case "summary":
      return [badge(`level ${f.level}`), badge(count(f.turns, "turn"))];
    default:
      return [];
  }
}

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
  return branch(
    "call",
    [
      el("span", { class: call.failed ? "failed" : "well" }, call.failed ? "✗ " : "● "),
      el("b", {}, call.tool),
      " ",
      short(call.arguments, 120),
    ],
    () =>
      [
        words(call.arguments, "words code"),
        call.error ? words(call.error, "words code failed") : null,
        words(call.result, "words code"),
      ].filter(Boolean),
  );
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
    return el(
      "section",
      { class: "links" },
      el(
        "h3",
        {},
        names[kind] || kind[0].toUpperCase() + kind.slice(1),
        el("small", {}, ` ${list.length.toLocaleString("en")}`),
      ),
      rows(list, (each) => el("p", { class: "line" }, opener(each)), 25),
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
  for (const hit of hits)
    list.append(el("p", { class: "line" }, opener(hit), el("small", {}, moment(hit.at))));
  if (!hits.length) list.append(el("p", { class: "nothing" }, "No matches."));
}

let typing = 0;

function typed() {
  clearTimeout(typing);
  typing = setTimeout(() => {
    refilter();
  }, 120);
}

function drawFilters() {
  const counts = {};
  for (const node of data.nodes) counts[node.kind] = (counts[node.kind] || 0) + 1;
  const kinds = Object.entries(KINDS).map(([kind, [name]]) =>
    el(
      "button",
      {
        type: "button",
        class: "chip",
        "data-kind": kind,
        "aria-pressed": "true",
        title: `Show or hide: ${name}`,
        onclick: (event) => {
          state.kinds.has(kind) ? state.kinds.delete(kind) : state.kinds.add(kind);
          event.currentTarget.setAttribute("aria-pressed", String(state.kinds.has(kind)));
          refilter();
        },
      },
      glyph(kind),
      name,
      el("small", {}, (counts[kind] || 0).toLocaleString("en")),
    ),
  );
  const date = (name, set) =>
    el("input", {
      type: "date",
      "aria-label": name,
      title: name,
      onchange: (event) => {
        set(event.target.value);
        refilter();
      },
    });
  by("filters").append(
    ...kinds,
    el(
      "label",
      {},
      "from ",
      date("From this day", (value) => (state.from = value ? new Date(`${value}T00:00`).getTime() : 0)),
    ),
    el(
      "label",
      {},
      "to ",
      date(
        "To this day",
        (value) => (state.to = value ? new Date(`${value}T00:00`).getTime() + 864e5 : Infinity),
      ),
    ),
    el(
      "label",
      {},
      "memories by ",
      el(
        "select",
        {
          id: "trust",
          onchange: (event) => {
            state.trust = event.target.value;
            refilter();
          },
        },
        ...[
          ["", "anyone"],
          ["person", "you"],
          ["model", "the model"],
          ["tool", "files and tools"],
        ].map(([value, name]) => el("option", { value }, name)),
      ),
    ),
  );
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
    by("tabs").append(
      el(
        "button",
        { type: "button", role: "tab", "data-view": view, onclick: () => go(view, state.selected) },
        name,
      ),
    );
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
