"use strict";

// Texts are set as texts, never as markup: names come from the configuration and from peers.
function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// Make the children of parent correspond to items: known ones are kept, with their focus and state.
function sync(parent, items, key, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  items.forEach((item, i) => {
    const k = key(item, i);
    let child = old.get(k);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = k;
    }
    old.delete(k);
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null);
    update(child, item, i);
  });
  for (const child of old.values()) child.remove();
}

const whole = new Intl.NumberFormat("en");
function number(n) { return whole.format(Math.round(n)); }
function few(n) { return n < 9.95 ? n.toPrecision(2) : number(n); }
function scaled(n, step, units) {
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) { n /= step; i++; }
  return (i === 0 || n >= 999.5 ? number(n) : n.toPrecision(3)) + units[i];
}
function bytes(n) { return scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]); }
function bits(n) { return scaled(n, 1000, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"]); }
function time(ns) { return scaled(ns, 1000, [" ns", " µs", " ms", " s"]); }
function per(a, b) { return b === 0 ? "0.00" : (a / b).toFixed(2); }
function named(parts) { return parts.length === 0 ? "none" : parts.map(p => p.name + " " + number(p.count)).join(", "); }
function since(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  return (d ? d + " d " : "") + (d || h ? h + " h " : "") + m + " min";
}

function clock(text) {
  const iso = new Date(text).toISOString(), day = newest && newest.time.slice(0, 10) === iso.slice(0, 10);
  return day ? iso.slice(11, 19) : iso.slice(0, 19).replace("T", " ");
}

const severities = { error: "bad", warning: "warn", info: "quiet" };
const ranks = { bad: 0, warn: 1, good: 2 };

// How much attention a flow needs: that of the worst of its findings.
function need(f) {
  const worst = newest.findings.find(x => x.flow === f.name && x.severity !== "info");
  return worst ? severities[worst.severity] : "good";
}

function makeFinding() {
  const li = element("li");
  li.append(element("b"), element("span"));
  return li;
}

function updateFinding(li, x) {
  li.className = severities[x.severity];
  setText(li.children[0], (x.flow ? "" : x.severity + ": ") + x.text);
  setText(li.children[1], x.remedy ? ": " + x.remedy : "");
}

function makeFlow() {
  const li = element("li"), details = element("details"), summary = element("summary"), graph = element("span", "graph");
  const name = element("span"), path = element("span", "path"), rate = element("span");
  name.append(element("b"), element("small", "state"));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 300 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  for (const c of ["rate", "loss"]) svg.append(document.createElementNS(svg.namespaceURI, "path"));
  svg.children[0].setAttribute("class", "rate");
  svg.children[1].setAttribute("class", "loss");
  graph.append(svg, element("small"));
  rate.append(element("span"), element("small", "bits"), element("small", "lost"));
  const icon = element("span", "icon");
  icon.setAttribute("aria-hidden", "true");
  summary.append(icon, name, path, graph, rate);
  const bins = element("table", "bins");
  bins.append(element("caption", "", ""), element("tbody"));
  details.append(summary, element("dl"), bins);
  const room = element("div", "room");
  room.append(element("span"));
  li.append(details, element("ul", "findings"), room);
  details.addEventListener("toggle", () => { const now = newest.flows.find(f => f.name === li.dataset.key); if (now) updateFlow(li, now); });
  return li;
}

function updateFlow(li, f) {
  const [details, findings, room] = li.children, [summary, list, bins] = details.children, [icon, name, path, graph, rate] = summary.children;
  const level = need(f), own = newest.findings.filter(x => x.flow === f.name);
  li.className = "flow " + level;
  setText(icon, level === "good" ? "\u2713" : "!");
  setText(name.children[0], f.name);
  setText(name.children[1], f.state);
  setText(path, f.from + " \u2192 " + f.to);
  setText(rate.children[0], number(f.rate) + " " + f.unit + "/s");
  setText(rate.children[1], bits(f.bits));
  setText(rate.children[2], f.losing > 0 ? "lost " + few(f.losing) + "/s" : f.recently_lost > 0 ? "lost " + number(f.recently_lost) + " in 5 min" : "");
  updateGraph(graph, f);
  sync(findings, own.filter(x => x.severity !== "info"), (x, i) => String(i), makeFinding, updateFinding);
  const d = f.disk;
  room.hidden = f.cause !== "disk_full" || !d || !d.size_bytes;
  if (!room.hidden) {
    room.children[0].style.width = (100 * (1 - d.free_bytes / d.size_bytes)) + "%";
    room.title = free(d);
  }
  if (!details.open) return;
  pairs(list, rows(f, own));
  updateBins(bins, f);
}

// The last five minutes: the rate, and from the bottom what was lost. The newest is at the right.
function updateGraph(graph, f) {
  const [svg, text] = graph.children, rates = f.rates || [], losses = (f.losses || []).map(n => n / newest.step_seconds);
  const most = Math.max(1, ...rates, ...losses), lost = Math.max(0, ...losses);
  graph.hidden = Math.max(0, ...rates, ...losses) === 0;
  const draw = (all, least) => all.map((v, i) => v > 0 ? "M" + 10 * (30 - all.length + i) + ",24v-" + Math.max(least, 24 * v / most).toFixed(1) + "h10V24z" : "").join("");
  svg.children[0].setAttribute("d", draw(rates, 1));
  svg.children[1].setAttribute("d", draw(losses, 3));
  const said = "5 min, at most " + number(Math.max(0, ...rates)) + "/s";
  setText(text, said);
  svg.setAttribute("aria-label", said + (lost > 0 ? ", lost at most " + few(lost) + "/s" : ", nothing lost"));
}

function free(d) {
  return bytes(d.free_bytes) + " of " + bytes(d.size_bytes) + " free" + (d.reserve_bytes ? ", and " + bytes(d.reserve_bytes) + " stay so (to.keep_free)" : "");
}

function rows(f, own) {
  const all = [["received", number(f.packets) + " " + f.unit + ", " + bytes(f.bytes)],
    ["lost", named(f.lost)], ["copies per byte", "ours " + per(f.copied_bytes, f.bytes) + ", the kernel's " + per(f.kernel_copied_bytes, f.bytes)]];
  if ("held" in f) all.push(["in flight", number(f.held) + " frames of the region"]);
  if (f.disk) {
    all.push(["disk", bytes(f.disk.written_bytes) + " written, " + number(f.disk.durable_packets) + " " + f.unit + " durable" + (f.disk.errors.length ? "; errors: " + named(f.disk.errors) : "")]);
    if (f.disk.size_bytes) all.push(["room", free(f.disk)]);
  }
  if (f.group) all.push(["group", f.group]);
  for (const p of f.peers || []) all.push(["peer " + p.name, p.state + "; " + number(p.acknowledged) + " acknowledged, " + number(p.waiting) + " waiting; lost: " + named(p.lost)]);
  if (f.latency) all.push(["latency", "median " + time(f.latency.p50_ns) + ", 99 % " + time(f.latency.p99_ns) + ", 99.9 % " + time(f.latency.p99_9_ns) + ", at most " + time(f.latency.max_ns)]);
  own.filter(x => x.severity === "info").forEach((x, i) => all.push(["note " + (i + 1), x.text + (x.remedy ? ": " + x.remedy : "")]));
  return all;
}

function pairs(list, all) {
  sync(list, all.flatMap(([k, v]) => [["dt", k, k], ["dd", k, v]]), ([tag, k]) => tag + k, ([tag]) => element(tag), (e, [, , text]) => setText(e, text));
}

// One row for each time, with a bar to scale.
function updateBins(table, f) {
  const bins = f.histogram || [];
  table.hidden = bins.length === 0;
  setText(table.caption, "Number of " + f.unit + " by latency, since the flow began");
  const most = Math.max(1, ...bins.map(b => b.count));
  sync(table.tBodies[0], bins, b => String(b.below_ns), b => {
    const tr = element("tr"), th = element("th", "", "below " + time(b.below_ns)), bar = element("td");
    th.scope = "row";
    bar.append(element("i"));
    tr.append(th, bar, element("td"));
    return tr;
  }, (tr, b) => {
    tr.children[1].children[0].style.width = (100 * b.count / most) + "%";
    setText(tr.children[2], number(b.count));
  });
}

function updateRegion(r) {
  setText(byId("region").children[0], "Region: " + bytes(r.bytes) + " on " + r.pages + ", " + number(r.frames) + " frames by owner");
  sync(byId("owners"), r.owners, o => o.name, () => element("span"), (e, o, i) => {
    e.className = "c" + i % 10;
    e.style.flex = o.count + " 0 0";
    e.hidden = o.count === 0;
  });
  sync(byId("legend"), r.owners, o => o.name, () => {
    const d = element("div"), dt = element("dt");
    dt.append(element("span"), element("span"));
    d.append(dt, element("dd"));
    return d;
  }, (d, o, i) => {
    d.children[0].children[0].className = "key c" + i % 10;
    setText(d.children[0].children[1], o.name);
    setText(d.children[1], number(o.count));
  });
}

function readers(all) {
  return all.length === 0 ? "nobody" : all.map(r => r.name + (r.reading ? "" : " (absent)") + (r.lag ? ", " + number(r.lag) + " behind" : "") + (r.lost ? ", " + number(r.lost) + " lost" : "")).join("; ");
}

// The programs of this host, and what they share.
function updateShared(d) {
  const all = [];
  for (const p of d.programs || []) all.push(["program " + p.name, (p.attached ? "attached" : "not attached") + ", " + number(p.attaches) + " times so far; ended: " + named(p.ended)]);
  for (const c of d.channels || []) all.push(["channel " + c.name, number(c.messages) + " messages of " + (c.writer || "a peer") + (c.writing ? "" : " (absent)") + "; writer waited " + number(c.stalls) + " times; read by " + readers(c.readers)]);
  for (const s of d.states || []) all.push(["state " + s.name, number(s.entries) + " entries at position " + number(s.position) + ", " + number(s.updates) + " updates; refused: " + named(s.refused) + "; read by " + readers(s.readers) + ", " + number(s.peers) + " peers"]);
  byId("shared").parentElement.hidden = all.length === 0;
  pairs(byId("shared"), all);
}

function updateMessages(all) {
  byId("messages").closest("section").hidden = all.length === 0;
  sync(byId("messages"), all, m => m.level + "\n" + m.flow + "\n" + m.text, () => {
    const tr = element("tr");
    for (let i = 0; i < 5; i++) tr.append(element("td"));
    return tr;
  }, (tr, m) => {
    [m.level.toLowerCase(), m.flow || "", m.text, m.count === 1 ? "once" : number(m.count) + " since " + clock(m.first), clock(m.last)].forEach((text, i) => setText(tr.children[i], text));
    tr.children[0].className = m.level === "ERROR" ? "bad" : "warn";
  });
}

function byId(id) { return document.getElementById(id); }

function banner(level, text) {
  byId("banner").className = level;
  setText(byId("banner"), text);
}

// What needs attention: flows, and errors of the daemon.
function updateBanner(flows) {
  const bad = flows.filter(f => need(f) !== "good"), own = newest.findings.find(x => !x.flow && x.severity === "error");
  let text = bad.length === 0 ? "" : bad.length + (bad.length === 1 ? " flow needs" : " flows need") + " attention: " + bad.slice(0, 8).map(f => f.name).join(", ") + (bad.length > 8 ? " and " + (bad.length - 8) + " more" : "");
  if (own) text += (text ? "; " : "") + own.text;
  const level = own || bad.some(f => need(f) === "bad") ? "bad" : text ? "warn" : "good";
  banner(level, text || "Nothing needs attention");
  document.title = (bad.length ? "(" + bad.length + ") " : "") + newest.host + ": unifiedd";
}

let newest = null;

function show(d) {
  newest = d;
  const flows = (d.flows || []).slice().sort((a, b) => ranks[need(a)] - ranks[need(b)]), focused = document.activeElement;
  document.body.classList.remove("stale");
  byId("age").hidden = true;
  setText(byId("host"), d.host || "unifiedd");
  setText(byId("about"), "unifiedd " + d.version + ", up " + since(d.up_seconds) + ", " + flows.filter(f => f.state === "running").length + " of " + flows.length + " flows run");
  updateBanner(flows);
  sync(byId("flows"), flows, f => f.name, makeFlow, updateFlow);
  const own = d.findings.filter(x => !x.flow);
  byId("findings").parentElement.hidden = own.length === 0;
  sync(byId("findings"), own, (x, i) => String(i), makeFinding, updateFinding);
  updateShared(d);
  updateMessages(d.messages);
  updateRegion(d.region);
  if (focused !== document.activeElement && focused.isConnected) focused.focus(); // it was moved
  document.documentElement.dataset.shown = d.time;
}

// A daemon that does not answer is asked again every few seconds. One that falls silent counts as well: the host may
// be gone, and its connection with it.
const again = 5000;
let events = null, begun = 0, last = 0, gap = 1000, retry = 0;

function connect() {
  retry = 0;
  begun = performance.now();
  events = new EventSource("events");
  events.onerror = lose;
  events.onmessage = e => {
    const now = performance.now();
    if (last) gap = now - last;
    last = now;
    show(JSON.parse(e.data));
  };
}

function lose() {
  events.close();
  retry = performance.now() + again;
  tell();
}

function tell() {
  document.body.classList.add("stale");
  banner("bad", "The daemon does not answer" + (newest ? ": last update " + clock(newest.time) + " UTC" : ""));
  const now = performance.now();
  byId("age").hidden = false;
  setText(byId("age"), (last ? Math.round((now - last) / 1000) + " s ago; " : "") + "trying again in " + Math.max(0, Math.ceil((retry - now) / 1000)) + " s");
}

setInterval(() => {
  const now = performance.now();
  if (retry === 0 && now - Math.max(last, begun) > again + 3 * gap) lose();
  else if (retry) tell();
  if (retry && now >= retry) connect();
}, 1000);
connect();
