// What is wrong: the view that opens. What an operator sees at three in the morning.

import { ICONS, fill, h, icon, say } from "../dom.js";
import { byteRate, bytes, clock, count, duration, milliseconds, percent, rate } from "../format.js";
import { follow, has, live, slope, value } from "../live.js";
import { nothing, panel, tile } from "../widgets.js";

/** What a reason looks like, the command that cures it or shows more, and the view that says why. */
const CURES = [
  [/^listener (\S+) /, (found) => `vmq listener start ${word(found[1])}`, null],
  [/plugin (\S+) fails/, (found) => `vmq plugin reload ${word(found[1])}`, "#/plugins"],
  [/store cannot write/, () => "df -h; vmq config show | grep data_dir", null],
  [/durable work is refused/, () => "vmq session list --sort -queue_size --limit 10", "#/clients?sort=-queue_size"],
  [/memory is high/, () => "vmq session list --sort -queue_size --limit 10", "#/clients?sort=-queue_size"],
  [/damaged|missing|unreadable/, () => "vmq store check", null],
  [/event loop/, () => "vmq metrics --where 'name ~ \"hook|lag\"'", "#/plugins"],
  [/stream (\S+)/, (found) => `vmq stream show ${word(found[1].replace(/[:,]$/, ""))}`, "#/streams"],
  [/node|member|cluster|partition|slot/, () => "vmq cluster status", "#/cluster"],
  [/job/, () => "vmq jobs list", "#/streams"],
];

/** A word of a command, whatever it holds: nothing of it means anything to a shell, or to a terminal that it is pasted into. */
export function word(text) {
  if (/^[\w.,:@%+=/-]+$/.test(text)) return text;
  // eslint-disable-next-line no-control-regex
  const hidden = /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
  if (!hidden.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const plain = text.replace(/[\\']/g, "\\$&").replace(hidden, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `$'${plain}'`;
}

/** The command for a client: its id is no option, whatever it begins with. */
const forClient = (command) => (name, tree) => `${command}${tree ? ` --mountpoint=${word(tree)}` : ""} ${name.startsWith("-") ? "-- " : ""}${word(name)}`;
const whyReceive = (name, tree) => `#/why?${new URLSearchParams({ what: "receive", client_id: name, mountpoint: tree || "" })}`;
const hostOf = (name) => / from (\S+)$/.exec(name)?.[1] || "";

/** Who is worst by what: the view that says why, and the command that cures it. */
const WORST = [
  { name: "queue_bytes", title: "Largest queues", show: bytes, why: whyReceive, cure: forClient("vmq queue purge") },
  { name: "dropped", title: "Most dropped", show: count, why: whyReceive, cure: forClient("vmq queue peek") },
  { name: "inflight_age", title: "Longest unacknowledged", show: duration, why: whyReceive, cure: forClient("vmq session disconnect") },
  { name: "reconnects", title: "Most reconnects", show: count, why: (name) => `#/clients?${new URLSearchParams({ client: name })}`, cure: (name) => `vmq ban add --for 1h --client=${word(name)}` },
  { name: "logins_refused", title: "Refused logins", show: count, why: () => (has("plugins") ? "#/plugins" : "#/now"), cure: (name) => `vmq ban add --for 1h --address=${word(hostOf(name))}` },
  { name: "hook_time", title: "Slowest hooks", show: milliseconds, why: () => "#/plugins", cure: (name) => `vmq plugin reload ${word(name.split(".")[0])}` },
];

/** The figures of a moment. */
const moment = (seconds) => `#/now?${new URLSearchParams({ span: 300, t: Math.round(seconds) })}`;

function cureOf(text) {
  for (const [pattern, command] of CURES) {
    const found = pattern.exec(text);
    if (found) return command(found);
  }
  return "vmq health";
}

/** Where it is told why: the view of what is wrong, or the figures of when it began. */
function whyOf({ text, since }) {
  const view = CURES.find(([pattern]) => pattern.test(text))?.[2];
  return view && (view !== "#/plugins" || has("plugins")) && (view !== "#/cluster" || has("cluster")) ? view : moment(since + 60);
}

function verdict() {
  const box = h("section", { class: "verdict" });
  let said = "";
  const update = () => {
    const tick = live.tick;
    if (!tick) return;
    const ages = tick.reasons.map((each) => h("span", { class: "since" }));
    const signature = JSON.stringify([tick.status, tick.reasons.map((each) => each.text)]);
    if (signature !== said) {
      said = signature;
      box.className = `verdict verdict-${tick.status}`;
      const title = { ok: "Nothing is wrong", degraded: "Degraded: clients are served, and this is wrong", failing: "Failing: new clients are not served" }[tick.status];
      fill(
        box,
        h("div", { class: "verdict-head" }, icon(tick.status === "ok" ? ICONS.ok : tick.status === "failing" ? ICONS.bad : ICONS.warn), h("h2", {}, title)),
        tick.reasons.length
          ? h("ul", { class: "reasons" }, tick.reasons.map((each, i) => h("li", {}, h("p", {}, each.text), h("p", { class: "hint" }, ages[i], " · ", h("a", { href: whyOf(each) }, "Why?"), " · ", h("code", {}, cureOf(each.text))))))
          : h("p", { class: "hint uptime" }),
      );
    }
    box.querySelectorAll(".since").forEach((each, i) => say(each, `since ${clock(tick.reasons[i].since)} (${duration(tick.time - tick.reasons[i].since)})`));
    const up = box.querySelector(".uptime");
    if (up) say(up, `vmq ${live.hello.version}${live.hello.compiled ? "" : " (interpreted)"}, up for ${duration(tick.time - live.hello.started)}, ${count(value("sessions"))} sessions, ${count(value("subscriptions"))} subscriptions`);
  };
  update();
  return { element: box, update };
}

function worstRow([name, figure, tree], kind) {
  return h("li", {}, h("a", { href: kind.why(name, tree) }, name), h("b", {}, kind.show(figure)), h("code", {}, kind.cure(name, tree)));
}

function worst() {
  const box = h("div", { class: "worst" });
  const update = () => {
    const there = WORST.filter(({ name }) => (live.worst[name] || []).length);
    const quiet = WORST.filter(({ name }) => !(live.worst[name] || []).length).map(({ title }) => title.toLowerCase());
    fill(
      box,
      there.map((kind) => h("section", { class: "panel" }, h("h2", {}, kind.title), h("ol", {}, live.worst[kind.name].map((row) => worstRow(row, kind))))),
      quiet.length ? h("p", { class: "hint quiet" }, `Nothing to tell of: ${quiet.join(", ")}.`) : null,
    );
  };
  update();
  return { element: box, update };
}

function meter(label) {
  const bar = h("meter", { min: "0", max: "1", high: "0.8", optimum: "0", "aria-label": label });
  const text = h("span", { class: "hint" });
  return { element: h("div", { class: "resource" }, h("span", {}, label), bar, text), bar, text };
}

/** When it will be full, as it has grown in the last ten minutes; what takes longer than a month is no news. */
function untilFull(left, grows) {
  const seconds = grows > 0 && left > 0 ? left / grows : Infinity;
  return seconds < 30 * 86400 ? `full in ${duration(seconds)} at this rate` : "does not fill up";
}

function resources() {
  const memory = meter("Memory");
  const disk = meter("Disk");
  const loop = meter("Event loop");
  const update = () => {
    const limit = value("memory_limit");
    memory.bar.value = limit ? value("memory") / limit : 0;
    say(memory.text, `${bytes(value("memory"))}${limit ? ` of ${bytes(limit)}` : ""}, ${limit ? untilFull(limit - value("memory"), slope("memory")) : "no limit"}`);
    const size = value("disk");
    disk.bar.value = size ? 1 - value("disk_free") / size : 0;
    say(disk.text, `${bytes(value("disk_free"))} free, ${untilFull(value("disk_free"), -slope("disk_free"))}; store ${bytes(value("store"))}`);
    loop.bar.value = Math.min(1, value("lag") / 1000);
    say(loop.text, `${milliseconds(value("lag"))} late at most in 5 s; processor ${percent(value("cpu"))} of a core`);
  };
  update();
  return { element: panel("Resources", memory.element, disk.element, loop.element), update };
}

/** The name that a line of the log has for a client or a plugin, if it has one. */
function named(kind, text) {
  const found = new RegExp(`\\b${kind}=(?:"((?:[^"\\\\]|\\\\.)*)"|(.+?)(?= (?:peer|reason|listener|failures|hook)=| is |: |, |$))`).exec(text);
  return found && (found[1] ? found[1].replace(/\\(.)/g, "$1") : found[2]);
}

/** Why a line of the log came, and the command for whom it is about. */
function helpFor({ text, time }) {
  const client = named("client", text);
  const plugin = named("plugin", text);
  const why = client ? whyReceive(client, "") : plugin && has("plugins") ? "#/plugins" : whyOf({ text, since: time });
  const command = client ? forClient("vmq session show")(client, "") : plugin ? `vmq plugin reload ${word(plugin)}` : cureOf(text);
  return h("span", { class: "hint" }, h("a", { href: why }, "Why?"), " · ", h("code", {}, command));
}

function log() {
  const list = h("ol", { class: "log" });
  const update = () => {
    const rows = [...live.warnings].reverse();
    fill(list, rows.length ? rows.map((row) => h("li", { class: `log-${row.level}` }, h("a", { href: moment(row.time + 60) }, h("time", {}, clock(row.time))), h("span", {}, row.text, " ", helpFor(row)))) : h("li", {}, nothing("No warnings since the broker started.")));
  };
  update();
  return { element: panel("Last warnings", h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Last warnings" }, list)), update };
}

export function wrong() {
  const parts = { tick: [verdict(), resources()], worst: [worst()], warnings: [log()] };
  const tiles = [
    tile("Messages in", "received", () => rate(value("received"))),
    tile("Messages out", "sent", () => rate(value("sent")), "second"),
    tile("Clients", "connections", () => count(value("connections"))),
    tile("Traffic", "bytes_in", () => byteRate(value("bytes_in") + value("bytes_out")), "second"),
    tile("Dropped", "dropped", () => rate(value("dropped")), "bad"),
  ];
  const stop = follow((kind) => {
    for (const part of parts[kind] || []) part.update();
  });
  const [said, room] = parts.tick;
  const element = h("div", { class: "view" }, said.element, h("div", { class: "tiles" }, tiles), h("div", { class: "halves" }, room.element, parts.warnings[0].element), parts.worst[0].element);
  return { element, stop: () => [stop, ...tiles.map((each) => each.stop)].forEach((end) => end()) };
}
