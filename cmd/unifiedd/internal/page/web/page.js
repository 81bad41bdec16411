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
function scaled(n, step, units) {
  let i = 0;
  while (n >= step && i < units.length - 1) { n /= step; i++; }
  return (i === 0 ? number(n) : n.toPrecision(3)) + units[i];
}
function bytes(n) { return scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]); }
function bits(n) { return scaled(n, 1000, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"]); }
function time(ns) { return scaled(ns, 1000, [" ns", " µs", " ms", " s"]); }
function per(a, b) { return b === 0 ? "0.00" : (a / b).toFixed(2); }
function named(parts) { return parts.length === 0 ? "none" : parts.map(p => p.name + " " + number(p.count)).join(", "); }
function clock(text) { return new Date(text).toISOString().replace("T", " ").slice(0, 19); }
function since(seconds) {
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60;
  return (d ? d + " d " : "") + (d || h ? h + " h " : "") + m + " min";
}

function makePicture() {
  const li = element("li");
  for (const c of ["end", "arrow", "memory", "arrow", "end"]) li.append(element("span", c));
  li.children[2].append(element("b"), element("span", "state"), element("span", "held"));
  return li;
}

function updatePicture(li, f) {
  const [from, arrowIn, memory, arrowOut, to] = li.children;
  li.className = f.rate > 0 ? "" : "still";
  setText(from, f.from);
  setText(arrowIn, number(f.rate) + " " + f.unit + "/s");
  setText(memory.children[0], f.name);
  setText(memory.children[1], f.state);
  memory.children[1].className = "state " + (f.up && f.state === "running" ? "good" : "bad");
  setText(memory.children[2], "held" in f ? number(f.held) + " frames of the region" : "in the region");
  setText(arrowOut, bits(f.bits));
  setText(to, f.to);
}

function rows(f) {
  const all = [["state", f.state + (f.why ? ": " + f.why : "")], ["received", number(f.packets) + " " + f.unit + ", " + bytes(f.bytes)], ["rate", number(f.rate) + "/s, " + bits(f.bits)],
    ["lost", named(f.lost)], ["copies per byte", "ours " + per(f.copied_bytes, f.bytes) + ", the kernel's " + per(f.kernel_copied_bytes, f.bytes)]];
  if (f.disk) {
    all.push(["disk", bytes(f.disk.written_bytes) + " written, " + number(f.disk.durable_packets) + " " + f.unit + " durable; errors: " + named(f.disk.errors) + (f.disk.free_bytes ? "; free: " + bytes(f.disk.free_bytes) : "")]);
  }
  if (f.group) all.push(["group", f.group]);
  for (const p of f.peers || []) all.push(["peer " + p.name, p.state + "; " + number(p.acknowledged) + " acknowledged, " + number(p.waiting) + " waiting; lost: " + named(p.lost)]);
  if (f.latency) all.push(["latency", "median " + time(f.latency.p50_ns) + ", 99 % " + time(f.latency.p99_ns) + ", 99.9 % " + time(f.latency.p99_9_ns) + ", at most " + time(f.latency.max_ns)]);
  return all;
}

function makeDetails() {
  const d = element("details");
  d.append(element("summary"), element("dl"), element("div", "bars"));
  d.children[2].setAttribute("role", "img");
  return d;
}

function updateDetails(d, f) {
  const [summary, list, bars] = d.children;
  setText(summary, f.name + ": " + f.state + ", " + number(f.rate) + " " + f.unit + "/s, lost " + number(f.lost.reduce((n, p) => n + p.count, 0)));
  if (!d.open) return;
  sync(list, rows(f).flatMap(([k, v]) => [["dt", k, k], ["dd", k, v]]), ([tag, k]) => tag + k, ([tag]) => element(tag), (e, [, , text]) => setText(e, text));
  const bins = f.histogram || [];
  bars.hidden = bins.length === 0;
  if (bars.hidden) return;
  const most = Math.max(...bins.map(b => b.count));
  bars.setAttribute("aria-label", "Latency: " + bins.filter(b => b.count > 0).map(b => number(b.count) + " below " + time(b.below_ns)).join(", "));
  sync(bars, bins, b => String(b.below_ns), () => element("span"), (e, b) => {
    e.style.height = (100 * b.count / most) + "%";
    e.title = number(b.count) + " below " + time(b.below_ns);
  });
}

function updateRegion(r) {
  setText(byId("region"), bytes(r.bytes) + " on " + r.pages + ": " + number(r.frames) + " frames, by owner");
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
  for (const c of d.channels || []) all.push(["channel " + c.name, number(c.messages) + " messages of " + (c.writer || "a peer") + (c.writing ? "" : " (absent)") + "; it waited for " + number(c.stalls) + "; read by " + readers(c.readers)]);
  for (const s of d.states || []) all.push(["state " + s.name, number(s.entries) + " entries at position " + number(s.position) + ", " + number(s.updates) + " updates; refused: " + named(s.refused) + "; read by " + readers(s.readers) + ", " + number(s.peers) + " peers"]);
  byId("shared").hidden = all.length === 0;
  sync(byId("shared-list"), all.flatMap(([k, v]) => [["dt", k, k], ["dd", k, v]]), ([tag, k]) => tag + k, ([tag]) => element(tag), (e, [, , text]) => setText(e, text));
}

const severities = { error: "bad", warning: "warn", info: "quiet" };

function updateMessages(all) {
  sync(byId("messages"), all, m => m.level + "\n" + m.flow + "\n" + m.text, () => {
    const tr = element("tr");
    for (let i = 0; i < 6; i++) tr.append(element("td"));
    return tr;
  }, (tr, m) => [m.text, m.flow || "", m.level.toLowerCase(), number(m.count), clock(m.first), clock(m.last)].forEach((text, i) => setText(tr.children[i], text)));
}

function byId(id) { return document.getElementById(id); }

let newest = null;

function show(d) {
  newest = d;
  const flows = d.flows || [], run = flows.filter(f => f.state === "running").length;
  setText(byId("about"), d.version + ", up " + since(d.up_seconds));
  setText(byId("connection"), run + " of " + flows.length + " flows run");
  byId("connection").className = run === flows.length ? "good" : "bad";
  sync(byId("picture"), flows, f => f.name, makePicture, updatePicture);
  updateRegion(d.region);
  const findings = d.findings.length ? d.findings : [{ severity: "good", text: "nothing" }];
  sync(byId("findings"), findings, (f, i) => String(i), () => element("li"), (li, f) => {
    li.className = severities[f.severity] || "good";
    setText(li, f.severity === "good" ? f.text : f.severity + ": " + f.text);
  });
  sync(byId("details"), flows, f => f.name, f => {
    const e = makeDetails();
    e.addEventListener("toggle", () => { const now = newest.flows.find(o => o.name === f.name); if (now) updateDetails(e, now); });
    return e;
  }, updateDetails);
  updateShared(d);
  updateMessages(d.messages);
  document.documentElement.dataset.shown = d.time;
}

const events = new EventSource("events");
events.onmessage = e => show(JSON.parse(e.data));
events.onerror = () => {
  setText(byId("connection"), "the daemon does not answer");
  byId("connection").className = "bad";
};
