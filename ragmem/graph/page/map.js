"use strict";
// The map: nodes as shapes, edges as lines, drawn on a canvas, with a layout by d3-force. While it
// is panned or zoomed, the last drawing is moved, and it is redrawn when it rests, so that it stays
// responsive at any size.

const MANY = 2500; // from so many on, the map opens on clusters
const MARGIN = 0.35; // of the canvas on each side, drawn beyond what is seen
const FIRST_MS = 120; // of layout before the first picture
const CLUSTERS = { none: "each by itself", session: "by session", file: "by file", time: "by time" };

const map = {
  canvas: null,
  back: null,
  items: [],
  lines: [],
  byId: new Map(),
  opened: new Set(),
  x: 0,
  y: 0,
  k: 1,
  drawn: null,
  hover: null,
  simulation: null,
  frame: 0,
  rest: 0,
  colors: {},
  moved: false,
};

// --- clusters ------------------------------------------------------------------

function folderOf(path) {
  const parts = path.split("/");
  if (!parts[0]) return parts.slice(0, -1).join("/") + "/";
  return parts.length > 1 ? parts.slice(0, Math.min(2, parts.length - 1)).join("/") + "/" : "./";
}

function pathOf(node) {
  return node.kind === "file" ? node.label : node.facts.path || "";
}

function weekOf(time) {
  const day = new Date(dayOf(time));
  day.setDate(day.getDate() - ((day.getDay() + 6) % 7));
  return `Week of ${DAY.format(day)}`;
}

// What represents a node on the map: itself, or [id, kind, label] of its cluster.
function clusterOf(node) {
  const code = node.kind === "file" || node.kind === "code";
  if (state.group === "none" || (state.group === "file" && node.kind === "file")) return null;
  if (code && state.group === "file") return [`file=${pathOf(node)}`, "file", pathOf(node)];
  if (code) return [`folder=${folderOf(pathOf(node))}`, "file", folderOf(pathOf(node))];
  if (state.group === "time" && node.time) return [`week=${weekOf(node.time)}`, "session", weekOf(node.time)];
  if (node.kind === "session") return null;
  const turn = node.kind === "memory" ? linked(node.id, "remembered", "decided")[0] : null;
  const session = nodes.get(turn ? nodes.get(turn).session : node.session);
  return session ? [session.id, "session", session.label] : null;
}

function gather() {
  const before = map.byId;
  map.byId = new Map();
  const placeOf = new Map();
  for (const node of data.nodes) {
    if (!passes(node)) continue;
    const cluster = clusterOf(node);
    const apart = !cluster || map.opened.has(cluster[0]);
    const [id, kind, label] = apart ? [node.id, node.kind, node.label] : cluster;
    let item = map.byId.get(id);
    if (!item) {
      const was = before.get(id);
      item = { id, kind, label, members: [], degree: 0, x: was?.x, y: was?.y };
      map.byId.set(id, item);
    }
    item.members.push(node.id);
    placeOf.set(node.id, item);
  }
  map.items = [...map.byId.values()];
  const lines = new Map();
  for (const [one, other, kind] of data.edges) {
    const source = placeOf.get(one);
    const target = placeOf.get(other);
    if (!source || !target || source === target) continue;
    const key = `${source.id}\n${target.id}`;
    const known = lines.get(key);
    if (known) known.weight += 1;
    else lines.set(key, { source, target, weight: 1, kind });
    source.degree += 1;
    target.degree += 1;
  }
  map.lines = [...lines.values()];
  map.placeOf = placeOf;
  for (const item of map.items) item.size = sizeOf(item);
}

function sizeOf(item) {
  const members = item.members.length;
  const node = nodes.get(item.id);
  if (item.kind === "session")
    return 7 + Math.min(16, Math.sqrt(Math.max(members, node?.facts.turns || 0)) * 1.4);
  if (members > 1) return 5 + Math.min(14, Math.sqrt(members) * 1.2);
  if (item.kind === "memory") return 6;
  if (item.kind === "turn") return 3.6;
  return 4 + Math.min(7, Math.sqrt(item.degree) * 0.7);
}

// --- layout ------------------------------------------------------------------------

// Initial positions: sessions on a spiral in order of time, their nodes around them, the rest
// between their neighbours. They are close to the final ones, so that few steps are needed.
function place() {
  const golden = Math.PI * (3 - Math.sqrt(5));
  const apart =
    26 * Math.sqrt(1 + map.items.length / Math.max(1, map.items.filter((i) => i.kind === "session").length));
  let sessions = 0;
  const around = new Map();
  for (const item of map.items) {
    if (item.kind !== "session" || item.x !== undefined) continue;
    const radius = apart * Math.sqrt(sessions + 0.5);
    item.x = radius * Math.cos(sessions * golden);
    item.y = radius * Math.sin(sessions * golden);
    sessions += 1;
  }
  for (const item of map.items) {
    if (item.x !== undefined) continue;
    const home = map.byId.get(nodes.get(item.id)?.session);
    if (!home) continue;
    const number = around.get(home) || 0;
    around.set(home, number + 1);
    const radius = home.size + 5 + 7 * Math.sqrt(number);
    item.x = home.x + radius * Math.cos(number * golden);
    item.y = home.y + radius * Math.sin(number * golden);
  }
  const near = new Map();
  for (const line of map.lines) {
    put(near, line.source, line.target);
    put(near, line.target, line.source);
  }
  map.items.forEach((item, number) => {
    if (item.x !== undefined) return;
    const others = (near.get(item) || []).filter((other) => other.x !== undefined);
    const x = others.reduce((sum, other) => sum + other.x, 0) / (others.length || 1);
    const y = others.reduce((sum, other) => sum + other.y, 0) / (others.length || 1);
    const radius = others.length ? 14 : 40 + 4 * Math.sqrt(number);
    item.x = x + radius * Math.cos(number * golden);
    item.y = y + radius * Math.sin(number * golden);
  });
}

function settle() {
  cancelAnimationFrame(map.settling);
  document.body.dataset.settled = "";
  const many = map.items.length > MANY;
  const length = { "said in": 22, "defined in": 18, "summed up in": 30 };
  const { clientWidth: width, clientHeight: height } = map.canvas;
  const tall = Math.min(2, Math.max(0.5, width / (height || 1)));
  map.simulation = layout
    .forceSimulation(map.items)
    .force(
      "apart",
      layout
        .forceManyBody()
        .strength((item) => -18 - 5 * item.size)
        .theta(1.1)
        .distanceMax(500),
    )
    .force(
      "links",
      layout
        .forceLink(map.lines)
        .distance((line) => (length[line.kind] || 55) + line.source.size + line.target.size)
        .strength((line) =>
          line.kind === "said in"
            ? 0.5
            : 0.5 / Math.sqrt(1 + Math.min(line.source.degree, line.target.degree)),
        ),
    )
    // The map gets the aspect ratio of the window.
    .force("x", layout.forceX(0).strength(0.042 / tall))
    .force("y", layout.forceY(0).strength(0.042 * tall))
    .alphaDecay(many ? 0.12 : 0.025)
    .stop();
  function tick(ms) {
    const ended = performance.now() + ms;
    do map.simulation.tick();
    while (performance.now() < ended && map.simulation.alpha() > 0.02);
  }
  tick(FIRST_MS);
  fit();
  // The remaining steps, a few in each frame; with reduced motion only the result is shown.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches || many;
  const whole = performance.now() + (many ? 1500 : 6000);
  function step() {
    tick(12);
    const done = map.simulation.alpha() <= 0.02 || performance.now() > whole;
    if (!map.moved && (done || !still)) fit();
    else if (done || !still) render();
    if (done) document.body.dataset.settled = "yes";
    else map.settling = requestAnimationFrame(step);
  }
  map.settling = requestAnimationFrame(step);
}

function fit() {
  if (!map.items.length) return render();
  const cut = Math.floor(map.items.length / 200);
  const extent = (places) => [places.sort((a, b) => a - b)[cut], places.at(-1 - cut)];
  const [left, right] = extent(map.items.map((item) => item.x));
  const [top, bottom] = extent(map.items.map((item) => item.y));
  const { clientWidth: width, clientHeight: height } = map.canvas;
  // There are buttons above, and a line of text below.
  const [above, below, beside] = [56, 40, 30];
  map.k = Math.min(
    4,
    (width - 2 * beside) / Math.max(60, right - left),
    (height - above - below) / Math.max(60, bottom - top),
  );
  map.x = width / 2 - (map.k * (left + right)) / 2;
  map.y = (height + above - below) / 2 - (map.k * (top + bottom)) / 2;
  render();
}

// --- drawing --------------------------------------------------------------------------

const SHAPES = {
  circle: (c, x, y, r) => c.arc(x, y, r, 0, 7),
  dot: (c, x, y, r) => c.arc(x, y, r, 0, 7),
  square: (c, x, y, r) => c.rect(x - r, y - r, 2 * r, 2 * r),
  diamond: (c, x, y, r) => polygon(c, x, y, r * 1.35, 4, 0),
  triangle: (c, x, y, r) => polygon(c, x, y, r * 1.3, 3, -Math.PI / 2),
  hexagon: (c, x, y, r) => polygon(c, x, y, r * 1.15, 6, 0),
};

function polygon(c, x, y, r, corners, turned) {
  for (let i = 0; i < corners; i += 1) {
    const angle = turned + (2 * Math.PI * i) / corners;
    c[i ? "lineTo" : "moveTo"](x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  c.closePath();
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...Object.keys(KINDS), "line", "text", "page", "strong", "changed"]) {
    map.colors[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

// The nodes to highlight: the selected one with its neighbours, or search results; null for all.
function standingOut() {
  const chosen = state.selected && map.placeOf.get(state.selected);
  if (chosen) {
    const near = new Set([chosen]);
    for (const line of map.lines) {
      if (line.source === chosen) near.add(line.target);
      if (line.target === chosen) near.add(line.source);
    }
    return near;
  }
  if (!state.found) return null;
  return new Set([...state.found].map((id) => map.placeOf.get(id)).filter(Boolean));
}

// Empty a canvas of a size in CSS pixels; return its context.
function cleared(canvas, width, height) {
  const sharp = Math.min(2, devicePixelRatio || 1);
  const size = [Math.round(width * sharp), Math.round(height * sharp)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const c = canvas.getContext("2d");
  c.setTransform(sharp, 0, 0, sharp, 0, 0);
  c.clearRect(0, 0, width, height);
  return c;
}

// Redraw everything onto the back canvas, with a margin, and show it.
function render() {
  clearTimeout(map.rest);
  const { clientWidth: width, clientHeight: height } = map.canvas;
  if (!width) return;
  const [mx, my] = [width * MARGIN, height * MARGIN];
  const c = cleared((map.back ||= document.createElement("canvas")), width + 2 * mx, height + 2 * my);
  c.translate(mx, my);
  const out = standingOut();
  const seen = map.items.filter((item) => {
    [item.sx, item.sy] = [item.x * map.k + map.x, item.y * map.k + map.y];
    item.r = item.size * Math.min(1.6, Math.max(0.32, Math.sqrt(map.k)));
    item.seen =
      item.sx > -mx - 20 && item.sx < width + mx + 20 && item.sy > -my - 20 && item.sy < height + my + 20;
    return item.seen;
  });
  drawLines(c, out);
  drawItems(c, seen, out);
  drawLabels(c, seen, out);
  map.drawn = { x: map.x, y: map.y, k: map.k, mx, my };
  paint();
}

function drawLines(c, out) {
  const chosen = state.selected && map.placeOf.get(state.selected);
  const groups = { faint: [], plain: [], changed: [], strong: [] };
  for (const line of map.lines) {
    if (!line.source.seen && !line.target.seen) continue;
    const near = chosen
      ? line.source === chosen || line.target === chosen
      : !out || (out.has(line.source) && out.has(line.target));
    const how = line.kind === "changed" || line.kind === "edited" ? "changed" : "plain";
    groups[!near ? "faint" : chosen ? "strong" : how].push(line);
  }
  const styles = {
    faint: ["line", 0.15],
    plain: ["line", map.lines.length > 3000 ? 0.25 : 0.75],
    changed: ["changed", map.lines.length > 3000 ? 0.2 : 0.45],
    strong: ["strong", 0.9],
  };
  for (const [name, lines] of Object.entries(groups)) {
    c.strokeStyle = map.colors[styles[name][0]];
    c.globalAlpha = styles[name][1];
    c.lineWidth = name === "strong" ? 1.4 : 0.7;
    c.beginPath();
    for (const { source, target } of lines) {
      c.moveTo(source.sx, source.sy);
      c.lineTo(target.sx, target.sy);
    }
    c.stroke();
  }
  c.globalAlpha = 1;
}

function drawItems(c, seen, out) {
  c.lineWidth = 1.2;
  c.strokeStyle = map.colors.page;
  for (const dim of [true, false]) {
    if (dim && !out) continue;
    c.globalAlpha = dim ? 0.14 : 1;
    for (const kind of Object.keys(KINDS)) {
      const shape = SHAPES[KINDS[kind][1]];
      c.fillStyle = map.colors[kind];
      c.beginPath();
      for (const item of seen) {
        if (item.kind !== kind || Boolean(out && !out.has(item)) !== dim) continue;
        c.moveTo(item.sx + item.r, item.sy);
        shape(c, item.sx, item.sy, item.r);
      }
      c.fill();
      if (seen.length < MANY) c.stroke();
    }
  }
  c.globalAlpha = 1;
}

function drawLabels(c, seen, out) {
  const taken = new Set();
  const chosen = state.selected && map.placeOf.get(state.selected);
  const edge = map.canvas.clientWidth;
  const rank = (item) =>
    (item === chosen ? 100 : item.kind === "session" ? 50 : item.kind === "summary" ? -8 : 0) + item.r;
  const wanted = seen
    .filter((item) => item === chosen || (out ? out.has(item) : item.r > 4.6))
    .sort((a, b) => rank(b) - rank(a))
    .slice(0, 400);
  c.textBaseline = "middle";
  c.lineJoin = "round";
  c.fillStyle = map.colors.text;
  c.strokeStyle = map.colors.page;
  c.lineWidth = 3.5;
  for (const item of wanted) {
    const big = item.kind === "session" || item === chosen;
    c.font = `${big ? `600 ${edge < 500 ? 11 : 12.5}px` : "11px"} system-ui, sans-serif`;
    const words = short(
      item.kind === "file" ? item.label.split("/").slice(-2).join("/") : item.label,
      edge < 500 ? 22 : 34,
    );
    const wide = c.measureText(words).width;
    const right = item.sx + item.r + 4;
    const left = right + wide > edge && item.sx <= edge ? Math.max(2, item.sx - item.r - 4 - wide) : right;
    const cells = [];
    for (let x = Math.floor(left / 12); x <= (left + wide) / 12; x += 1) {
      for (const y of [-7, 0, 7]) cells.push(`${x},${Math.floor((item.sy + y) / 8)}`);
    }
    if (item !== chosen && cells.some((cell) => taken.has(cell))) continue;
    cells.forEach((cell) => taken.add(cell));
    c.strokeText(words, left, item.sy);
    c.fillText(words, left, item.sy);
  }
}

const short = (words, most) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);

// Show the last drawing at its current position.
function paint() {
  const { clientWidth: width, clientHeight: height } = map.canvas;
  const c = cleared(map.canvas, width, height);
  const { x, y, k, mx, my } = map.drawn;
  const grown = map.k / k;
  c.drawImage(
    map.back,
    map.x - (x + mx) * grown,
    map.y - (y + my) * grown,
    (width + 2 * mx) * grown,
    (height + 2 * my) * grown,
  );
  if (map.hover) {
    c.strokeStyle = map.colors.strong;
    c.lineWidth = 2.5;
    c.beginPath();
    c.arc(map.hover.x * map.k + map.x, map.hover.y * map.k + map.y, map.hover.r + 3, 0, 7);
    c.stroke();
  }
}

// After a movement: show at once; redraw when it rests, or when part of the view was not drawn.
function moved() {
  map.moved = true;
  cancelAnimationFrame(map.frame);
  map.frame = requestAnimationFrame(() => {
    const { x, y, k, mx, my } = map.drawn;
    const far = Math.abs(map.x - x) > mx || Math.abs(map.y - y) > my;
    if (map.k === k && far) return render();
    paint();
    clearTimeout(map.rest);
    map.rest = setTimeout(render, 140);
  });
}

function zoom(factor, x = map.canvas.clientWidth / 2, y = map.canvas.clientHeight / 2) {
  const k = Math.min(20, Math.max(0.02, map.k * factor));
  map.x = x - ((x - map.x) * k) / map.k;
  map.y = y - ((y - map.y) * k) / map.k;
  map.k = k;
  moved();
}

function pan(dx, dy) {
  map.x += dx;
  map.y += dy;
  moved();
}

// The item at a point of the canvas; a fingertip hits a wider area than the mouse.
function at(x, y, reach = 6) {
  let best = null;
  let least = Infinity;
  for (const item of map.items) {
    const away = Math.hypot(item.x * map.k + map.x - x, item.y * map.k + map.y - y) - item.r;
    if (away < reach && away < least) [best, least] = [item, away];
  }
  return best;
}

// --- pointer and touch ------------------------------------------------------------------

function listen(canvas) {
  const touches = new Map();
  let travelled = 0;
  const place = (event) => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    touches.set(event.pointerId, place(event));
    travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = touches.get(event.pointerId);
    const now = place(event);
    if (!before) return hover(now, event);
    travelled += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (touches.size === 2) {
      const [other] = [...touches].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
      const span = (where) => Math.hypot(where[0] - other[0], where[1] - other[1]) || 1;
      zoom(span(now) / span(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else pan(now[0] - before[0], now[1] - before[1]);
    touches.set(event.pointerId, now);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (touches.delete(event.pointerId) && travelled < 6) {
      const item = at(...place(event), event.pointerType === "touch" ? 18 : 6);
      if (item) choose(item);
      else if (state.selected) go("map");
    }
  });
  canvas.addEventListener("pointercancel", (event) => touches.delete(event.pointerId));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 500)), ...place(event));
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (event) => zoom(2, ...place(event)));
}

function hover(where, event) {
  const item = at(...where);
  if (item === map.hover) return;
  map.hover = item;
  map.canvas.title = item
    ? `${KINDS[item.kind][0]}: ${item.label}` +
      (item.members.length > 1 ? ` (${count(item.members.length, "item")})` : "")
    : "";
  map.canvas.classList.toggle("over", Boolean(item));
  if (map.drawn) paint();
}

// A node opens its details; a cluster is expanded.
function choose(item) {
  if (nodes.has(item.id)) return go("map", item.id);
  if (!map.opened.delete(item.id)) map.opened.add(item.id);
  refreshMap();
}

function refreshMap() {
  map.moved = false;
  gather();
  place();
  settle();
  tellCount();
}

function tellCount() {
  const told = document.getElementById("map-count");
  const shapes = `${count(map.items.length, "shape")} for ${count(map.placeOf.size, "node")}`;
  // One drawn line may represent several edges.
  const lines = map.lines.reduce((sum, line) => sum + line.weight, 0);
  if (told) told.textContent = `${shapes}, ${count(lines, "line")}`;
}

// --- the view ------------------------------------------------------------------------------

function drawMap(view) {
  if (!map.canvas) {
    map.canvas = el("canvas", {
      id: "map",
      tabindex: 0,
      role: "img",
      "aria-label": "Map of the memory. The other views show the same as lists.",
    });
    listen(map.canvas);
    if (data.nodes.length > MANY) state.group = "session";
    new ResizeObserver(() => map.canvas.isConnected && map.drawn && (map.moved ? render() : fit())).observe(
      map.canvas,
    );
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      readColors();
      if (map.canvas.isConnected) render();
    });
  }
  readColors();
  const group = el(
    "select",
    {
      id: "group",
      "aria-label": "Clusters",
      onchange: (event) => {
        state.group = event.target.value;
        map.opened.clear();
        refreshMap();
      },
    },
    ...Object.entries(CLUSTERS).map(([value, name]) =>
      el("option", { value, selected: value === state.group ? "" : null }, name),
    ),
  );
  const tool = (words, name, does) => button({ title: name, "aria-label": name }, does, words);
  view.append(
    map.canvas,
    el(
      "div",
      { class: "tools" },
      el("label", {}, "Show ", group),
      tool("+", "Zoom in (+)", () => zoom(1.5)),
      tool("−", "Zoom out (−)", () => zoom(1 / 1.5)),
      tool("⤢", "Fit the whole map (0)", () => {
        map.moved = false;
        fit();
      }),
    ),
    el("p", { class: "hint", id: "map-count" }),
  );
  const key = JSON.stringify([
    state.group,
    [...state.kinds],
    state.trust,
    state.from,
    state.to === Infinity ? 0 : state.to,
  ]);
  if (key !== map.key) {
    map.key = key;
    refreshMap();
  } else {
    tellCount();
  }
  showChosen();
}

function showChosen() {
  const id = state.selected;
  const cluster = nodes.has(id) && clusterOf(nodes.get(id));
  if (cluster && cluster[0] !== id && !map.opened.has(cluster[0]) && map.placeOf.get(id)) {
    map.opened.add(cluster[0]);
    refreshMap();
  }
  const item = map.placeOf.get(id);
  const { clientWidth: width, clientHeight: height } = map.canvas;
  if (item) {
    const [x, y] = [item.x * map.k + map.x, item.y * map.k + map.y];
    if (x <= 30 || y <= 30 || x >= width - 30 || y >= height - 30) {
      map.k = Math.max(map.k, 1);
      map.x = width / 2 - item.x * map.k;
      map.y = height / 2 - item.y * map.k;
    }
  }
  render();
}
