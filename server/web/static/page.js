// Polls /state.json and shows it. Whatever a client has named is written as text, never as markup.
"use strict";

const POLL_MS = 1000;
const GAP_CELLS = 4096; // up to so many pages, cells are drawn apart
const OWNERS = ["free", "evictable", "protected", "leased", "retired"];
const COUNTERS = [
  ["requested_tokens", "tokens requested"],
  ["hit_tokens", "tokens hit"],
  ["inserted_pages", "pages inserted"],
  ["evicted_pages", "pages evicted"],
  ["demoted_pages", "pages demoted"],
  ["promoted_pages", "pages promoted"],
  ["offloaded_pages", "pages offloaded"],
  ["restored_pages", "pages restored"],
  ["failed_copy_pages", "pages of failed copies"],
];
const PREFIX_COLUMNS = [
  ["node", "node"], ["namespace", "namespace", "text"], ["end_token", "ends at token"], ["device_pages", "device pages"],
  ["host_pages", "host pages"], ["hits", "hits"], ["lock_ref", "locks"], ["priority", "priority"],
];
const SESSION_COLUMNS = [
  ["session_id", "session"], ["client_name", "name", "text"], ["pids", "processes", "text"], ["state", "state", "text"],
  ["idle_seconds", "silent s"], ["launched", "launched"], ["completed", "completed"], ["active_leases", "active"],
  ["waiting_leases", "waiting"], ["leased_pages", "leased"], ["reserved_pages", "reserved"], ["retired_pages", "retired"],
];
const LEASE_COLUMNS = [
  ["session", "session"], ["lease", "lease"], ["state", "state", "text"], ["known", "known"], ["allocated", "allocated"],
  ["written", "written"], ["published", "published"], ["own_pages", "own pages"], ["reserved_pages", "reserved"],
  ["priority", "priority"],
];

const number = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const sections = new Map(); // a pool's name: its section
let previous = null; // { at, epoch, counters: a pool's name: its occupancy }

const find = (root, selector) => root.querySelector(selector);
const write = (root, name, text) => { find(root, `[data-text="${name}"]`).textContent = text; };
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function showHealth(text, good, reasons) {
  const pill = find(document, "#health");
  pill.textContent = text;
  pill.className = `pill ${good ? "good" : "bad"}`;
  const trouble = find(document, "#trouble");
  trouble.hidden = !reasons.length;
  trouble.textContent = reasons.join("\n");
}

function show(state) {
  showHealth(state.unready.length ? "not ready" : "serving", !state.unready.length, state.unready);
  const cost = state.pools.reduce((sum, pool) => sum + pool.loop_ms, 0);
  find(document, "#about").textContent =
    `${state.version}, epoch ${state.epoch}, up ${duration(state.uptime_seconds)}; this page costs ${cost.toFixed(1)} ms a reading`;
  const now = performance.now();
  const before = previous && previous.epoch === state.epoch ? previous : null;
  for (const pool of state.pools) showPool(pool, before, before ? (now - before.at) / 1000 : 0);
  const counters = Object.fromEntries(state.pools.map((pool) => [pool.occupancy.pool, pool.occupancy]));
  previous = { at: now, epoch: state.epoch, counters };
}

function showPool(pool, before, seconds) {
  const occupancy = pool.occupancy;
  const section = sectionOf(occupancy.pool);
  write(section, "name", occupancy.pool);
  write(section, "kind",
    `${occupancy.geometry}, ${occupancy.layout}, ${occupancy.devices} × ${occupancy.device_kind}, ${occupancy.policy}, ` +
    `generation ${occupancy.generation}, ${number.format(occupancy.nodes)} nodes`);
  const broken = find(section, '[data-part="broken"]');
  broken.hidden = pool.broken === null;
  broken.textContent = pool.broken ?? "";
  for (const tier of ["device", "host"]) showTier(section, tier, pool);
  showTiles(section, pool, before && before.counters[occupancy.pool], seconds);
  showHistogram(section, pool.hit_lengths);
  const surveyed = pool.prefixes.surveyed < occupancy.nodes
    ? `of the ${number.format(pool.prefixes.surveyed)} nodes nearest to the roots` : "";
  showTable(section, "by_hits", PREFIX_COLUMNS, pool.prefixes.by_hits, surveyed);
  showTable(section, "by_pages", PREFIX_COLUMNS, pool.prefixes.by_pages, surveyed);
  const sessions = pool.sessions.map((session) => ({
    ...session,
    state: session.ended ? "ended" : session.streaming ? "streaming" : "no stream",
    pids: session.pids.join(" ") || "–",
    idle_seconds: session.idle_seconds.toFixed(1),
  }));
  showTable(section, "sessions", SESSION_COLUMNS, sessions, rest(sessions.length, pool.session_count));
  const leases = occupancy.active_leases + occupancy.waiting_leases;
  showTable(section, "leases", LEASE_COLUMNS, pool.leases, rest(pool.leases.length, leases));
}

function sectionOf(name) {
  let section = sections.get(name);
  if (!section) {
    section = find(document, "#pool").content.firstElementChild.cloneNode(true);
    section.dataset.pool = name;
    for (const tier of section.querySelectorAll(".tier")) {
      tier.append(find(document, "#tier").content.cloneNode(true));
    }
    sections.set(name, section);
    find(document, "#pools").append(section);
  }
  return section;
}

function showTier(section, name, pool) {
  const root = find(section, `[data-tier="${name}"]`);
  const ledger = pool.occupancy[name];
  root.hidden = !ledger.total;
  if (root.hidden) return;
  write(root, "title", name === "device" ? "Device" : "Host tier");
  write(root, "size", `${number.format(ledger.total)} pages of ${pool.occupancy.page_size} tokens`);
  const items = OWNERS.filter((owner) => owner in ledger).map((owner) => {
    const item = element("li");
    item.dataset.owner = owner;
    const swatch = element("i");
    swatch.style.backgroundColor = `var(--${owner})`;
    item.append(swatch, `${owner} `, element("b", "", number.format(ledger[owner])));
    return item;
  });
  find(root, ".legend").replaceChildren(...items);
  const canvas = find(root, "canvas");
  canvas.hidden = pool.maps === null;
  if (canvas.hidden) {
    write(root, "hint", "too many pages to draw");
    return;
  }
  canvas.setAttribute("aria-label", OWNERS.filter((owner) => owner in ledger).map((owner) => `${ledger[owner]} ${owner}`).join(", "));
  paint(canvas, decode(pool.maps[name]), pool.maps.states);
  if (!canvas.onmousemove) {
    canvas.onmousemove = (event) => point(root, canvas, event);
    canvas.onmouseleave = () => write(root, "hint", canvas.note);
  }
  canvas.note = pool.maps.whole ? "" : "so much is held that some protected pages are drawn as evictable";
  if (!canvas.matches(":hover")) write(root, "hint", canvas.note);
}

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Draws a cell for every page, in rows about three times as long as they are many. */
function paint(canvas, states, names) {
  const columns = Math.max(1, Math.ceil(Math.sqrt(3 * states.length)));
  const rows = Math.ceil(states.length / columns);
  const [cell, gap] = states.length <= GAP_CELLS ? [10, 2] : [1, 0];
  const palette = paletteOf(names);
  canvas.width = columns * cell;
  canvas.height = rows * cell;
  const image = new ImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let page = 0; page < states.length; page++) {
    const left = (page % columns) * cell;
    const top = Math.floor(page / columns) * cell;
    for (let y = top; y < top + cell - gap; y++) {
      pixels.fill(palette[states[page]], y * canvas.width + left, y * canvas.width + left + cell - gap);
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  Object.assign(canvas, { states, columns, names });
}

/** What the canvas holds in memory for each state: the style sheet's #rrggbb as 0xAABBGGRR. */
function paletteOf(names) {
  const palette = new Uint32Array(256);
  for (const [name, value] of Object.entries(names)) {
    const [red, green, blue] = color(name).match(/[0-9a-f]{2}/gi).map((digits) => parseInt(digits, 16));
    palette[value] = (0xff << 24) | (blue << 16) | (green << 8) | red;
  }
  return palette;
}

function point(root, canvas, event) {
  const box = canvas.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * canvas.columns);
  const rows = Math.ceil(canvas.states.length / canvas.columns);
  const page = Math.floor(((event.clientY - box.top) / box.height) * rows) * canvas.columns + column;
  const state = Object.keys(canvas.names).find((name) => canvas.names[name] === canvas.states[page]);
  write(root, "hint", state ? `page ${number.format(page)}: ${state}` : canvas.note);
}

function showTiles(section, pool, before, seconds) {
  const occupancy = pool.occupancy;
  const rate = (name) => (before && seconds > 0 ? (occupancy[name] - before[name]) / seconds : null);
  const [asked, hit] = [rate("requested_tokens"), rate("hit_tokens")];
  const tiles = [
    ["hit rate now", asked ? `${((100 * hit) / asked).toFixed(1)} %` : "–"],
    ["hit rate since start",
      occupancy.requested_tokens ? `${((100 * occupancy.hit_tokens) / occupancy.requested_tokens).toFixed(1)} %` : "–"],
    ["leases active + waiting", `${number.format(occupancy.active_leases)} + ${number.format(occupancy.waiting_leases)}`],
    ["reserved pages", number.format(occupancy.device.reserved_mine + occupancy.device.reserved_others)],
    ["copies in flight", `${pool.copies.in_flight}${pool.copies.overdue ? `, ${pool.copies.overdue} overdue` : ""}`],
    ...COUNTERS.filter(([name]) => occupancy.host.total || !/moted|loaded|restored/.test(name)).map(([name, text]) => {
      const now = rate(name);
      return [text, `${short.format(occupancy[name])}${now === null ? "" : ` · ${short.format(now)}/s`}`];
    }),
    ...(occupancy.journal ? [["journal", occupancy.journal]] : []),
  ];
  find(section, '[data-part="tiles"]').replaceChildren(...tiles.map(([text, value]) => {
    const tile = element("div", "tile");
    tile.dataset.tile = text;
    tile.append(element("span", "", text), element("b", "", value));
    return tile;
  }));
}

/** `buckets`: [upper end in tokens or null, count], each count that of its own bucket. */
function showHistogram(section, buckets) {
  const root = find(section, '[data-part="histogram"]');
  root.hidden = buckets.every(([, count]) => !count);
  const most = Math.max(1, ...buckets.map(([, count]) => count));
  find(root, "ol").replaceChildren(...buckets.map(([end, count]) => {
    const item = element("li", "", count ? short.format(count) : "");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 1 1");
    svg.setAttribute("preserveAspectRatio", "none");
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ x: 0, y: 1 - count / most, width: 1, height: count / most })) {
      bar.setAttribute(key, value);
    }
    svg.append(bar);
    item.append(svg, element("span", "", end === null ? "more" : `≤ ${short.format(end)}`));
    return item;
  }));
}

function showTable(section, part, columns, rows, note) {
  const root = find(section, `[data-part="${part}"]`);
  root.hidden = !rows.length;
  let table = find(root, "table");
  if (!table) {
    table = element("table");
    const head = table.createTHead().insertRow();
    for (const [, title, kind] of columns) head.append(element("th", kind ?? "", title));
    table.createTBody();
    root.append(table, element("p", "hint"));
  }
  table.tBodies[0].replaceChildren(...rows.map((row) => {
    const line = element("tr");
    for (const [key, , kind] of columns) {
      const cell = element("td", kind ?? "");
      const text = element("bdi", "", typeof row[key] === "number" ? number.format(row[key]) : row[key]);
      cell.append(text);
      line.append(cell);
    }
    return line;
  }));
  find(root, ".hint").textContent = note;
}

const rest = (shown, all) => (shown < all ? `${number.format(shown)} of ${number.format(all)}` : "");

function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}

async function poll() {
  if (!document.hidden) {
    try {
      const response = await fetch("/state.json", { signal: AbortSignal.timeout(10_000) });
      if (!response.ok) throw new Error((await response.text()).trim());
      show(await response.json());
    } catch (error) {
      showHealth("no answer", false, [`No state from the daemon: ${error.message}. What is below is old.`]);
    }
  }
  setTimeout(poll, POLL_MS);
}

poll();
