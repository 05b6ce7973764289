"use strict";
// The data, the state that all views share, and helpers. Conversations are untrusted data: they are
// inserted as text nodes only, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = {
  session: ["Sessions", "circle"],
  turn: ["Turns", "dot"],
  file: ["Files", "square"],
  code: ["Functions, classes", "diamond"],
  memory: ["Memories", "triangle"],
  summary: ["Summaries", "hexagon"],
};
data.edges = data.edges.map(([source, target, kind]) => [data.nodes[source].id, data.nodes[target].id, kind]);
const nodes = new Map(data.nodes.map((node) => [node.id, node]));
const outgoing = new Map();
const incoming = new Map();
for (const edge of data.edges) {
  put(outgoing, edge[0], edge);
  put(incoming, edge[1], edge);
}
for (const node of nodes.values()) {
  node.facts ||= {};
  node.time = node.at ? Date.parse(node.at) : 0;
}
const inTime = [...nodes.values()].filter((node) => node.time).sort((a, b) => a.time - b.time);

const state = {
  view: "map",
  selected: null,
  words: [],
  found: null, // a Set of ids while something is searched
  kinds: new Set(Object.keys(KINDS)),
  trust: "",
  from: 0,
  to: Infinity,
  group: "none",
};

function put(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

// Ids of the nodes that share an edge of these kinds with a node, in either direction.
function linked(id, ...kinds) {
  const wanted = (edge) => !kinds.length || kinds.includes(edge[2]);
  return [
    ...(outgoing.get(id) || []).filter(wanted).map((edge) => edge[1]),
    ...(incoming.get(id) || []).filter(wanted).map((edge) => edge[0]),
  ];
}

function from(id, kind) {
  return (incoming.get(id) || []).filter((edge) => edge[2] === kind).map((edge) => nodes.get(edge[0]));
}

function to(id, ...kinds) {
  return (outgoing.get(id) || []).filter((edge) => kinds.includes(edge[2])).map((edge) => nodes.get(edge[1]));
}

// --- elements -------------------------------------------------------------------

// Create an element with attributes, `on…` listeners, and children: elements or strings.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== "") made.append(child);
  }
  return made;
}

const p = (classes, ...children) => el("p", { class: classes }, ...children);
const small = (...children) => el("small", {}, ...children);

function button(attributes, onclick, ...children) {
  return el("button", { type: "button", ...attributes, onclick }, ...children);
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const POINTS = {
  square: "2,2 12,2 12,12 2,12",
  diamond: "7,0.5 13.5,7 7,13.5 0.5,7",
  triangle: "7,1 13.5,12.5 0.5,12.5",
  hexagon: "3.7,1.3 10.3,1.3 13.6,7 10.3,12.7 3.7,12.7 0.4,7",
};

// The symbol of a kind, as on the map.
function glyph(kind) {
  const shape = KINDS[kind][1];
  const drawn = POINTS[shape]
    ? svg("polygon", { points: POINTS[shape] })
    : svg("circle", { cx: 7, cy: 7, r: shape === "dot" ? 4 : 6.2 });
  return svg("svg", { class: `glyph ${kind}`, viewBox: "0 0 14 14", "aria-hidden": "true" }, drawn);
}

// A button that opens a node.
function opener(node, words = node.label) {
  const attributes = { class: "link", title: KINDS[node.kind][0], "data-id": node.id };
  const text = el("span", {}, words || "(empty)");
  return button(attributes, () => go(state.view, node.id), glyph(node.kind), text);
}

const digits = (number) => number.toLocaleString("en");
const count = (number, name, names = `${name}s`) => `${digits(number)} ${number === 1 ? name : names}`;

const DATE = { day: "numeric", month: "short", year: "numeric" };
const DAY = new Intl.DateTimeFormat("en-GB", DATE);
const MINUTE = new Intl.DateTimeFormat("en-GB", { ...DATE, hour: "2-digit", minute: "2-digit" });
const moment = (at) => (at ? MINUTE.format(new Date(at)) : "");
const dayOf = (time) => {
  const at = new Date(time);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
};

// Rows, of which more are added on demand, so that ten thousand open as quickly as ten.
function rows(list, make, step = 100) {
  const holder = el("div", { class: "rows" });
  let shown = 0;
  const more = button({ class: "more" }, show);
  function show() {
    more.remove();
    for (const each of list.slice(shown, shown + step)) holder.append(make(each));
    shown += step;
    if (shown < list.length) {
      more.textContent = `Show more (${digits(list.length - shown)} left)`;
      holder.append(more);
    }
  }
  show();
  return holder;
}

// --- filtering ---------------------------------------------------------------------

function passes(node) {
  if (!state.kinds.has(node.kind)) return false;
  if (state.trust && node.kind === "memory" && node.facts.trust !== state.trust) return false;
  if (state.from || state.to !== Infinity) {
    const isIn = (each) => each.time >= state.from && each.time < state.to;
    if (node.time) return isIn(node);
    return linked(node.id).some((id) => nodes.get(id).time && isIn(nodes.get(id)));
  }
  return true;
}

const shownNodes = (kind) => data.nodes.filter((node) => node.kind === kind && passes(node) && isFound(node));
const isFound = (node) => !state.found || state.found.has(node.id);

const haystacks = new Map();

function haystack(node) {
  let text = haystacks.get(node.id);
  if (text === undefined) {
    const f = node.facts;
    const calls = (f.calls || []).map((call) => `${call.tool} ${call.arguments}`);
    const texts = [f.asked, f.answered, f.content, f.text, f.summary, f.path, f.signature, f.docstring];
    const parts = [node.label, node.id, texts, f.tags, f.subjects, f.topics, calls].flat();
    haystacks.set(node.id, (text = parts.filter(Boolean).join("\n").toLocaleLowerCase()));
  }
  return text;
}

function search(typed) {
  state.words = typed.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  state.found = null;
  if (state.words.length) {
    const holds = (node) => state.words.every((word) => haystack(node).includes(word));
    state.found = new Set(data.nodes.filter((node) => passes(node) && holds(node)).map((node) => node.id));
  }
}

// --- the location: #map, #turn=ID, #days/turn=ID --------------------------------------

function address(view, id) {
  const [kind, ...rest] = (id || "").split("=");
  return `#${view}` + (id ? `/${kind}=${encodeURIComponent(rest.join("="))}` : "");
}

function go(view, id = null) {
  const hash = address(view, id);
  if (location.hash !== hash) location.hash = hash;
  arrive();
}

let arrivedAt = null;

function arrive(event) {
  // The browser also reports a change that was handled already.
  if (event && location.hash === arrivedAt) return;
  arrivedAt = location.hash;
  let [view, ...rest] = location.hash.slice(1).split("/");
  if (view.includes("=")) {
    rest = [view, ...rest];
    view = state.view;
  }
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    id = "";
  }
  state.view = VIEWS[view] ? view : state.view;
  state.selected = nodes.has(id) ? id : null;
  redraw();
}
