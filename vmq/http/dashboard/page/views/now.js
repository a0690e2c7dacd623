// Now: rates, latencies, connections and losses, over minutes or the whole hour; and each of several workers.

import { h } from "../dom.js";
import { byteRate, bytes, clock, count, milliseconds, percent, rate } from "../format.js";
import { follow, live } from "../live.js";
import { chart, panel, table } from "../widgets.js";

const SPANS = [[300, "5 min"], [900, "15 min"], [3600, "1 h"]];

const WORKER = ["number", "state", "pid", "restarts", "connections", "received", "sent", "cpu", "lag", "memory"];

/** The processes that are one broker, where there are several. */
function workers() {
  const list = table(
    [
      { name: "number", title: "worker", show: (row) => String(row.number) },
      { name: "state", title: "", show: (row) => row.state, kind: "name" },
      { name: "pid", title: "process", show: (row) => (row.pid ? String(row.pid) : "–"), kind: "number" },
      { name: "restarts", title: "restarts", show: (row) => count(row.restarts), kind: "number" },
      { name: "connections", title: "clients", show: (row) => count(row.connections), kind: "number" },
      { name: "received", title: "in", show: (row) => rate(row.received), kind: "number" },
      { name: "sent", title: "out", show: (row) => rate(row.sent), kind: "number" },
      { name: "cpu", title: "of a core", show: (row) => percent(row.cpu), kind: "number" },
      { name: "lag", title: "late by", show: (row) => milliseconds(row.lag), kind: "number" },
      { name: "memory", title: "memory", show: (row) => bytes(row.memory), kind: "number" },
    ],
    { label: "Workers", key: (row) => String(row.number) },
  );
  const element = panel("Workers", list);
  const update = () => {
    const rows = live.tick?.workers || [];
    element.hidden = !rows.length;
    list.show(rows.map((values) => Object.fromEntries(WORKER.map((name, place) => [name, values[place]]))));
  };
  update();
  return { element, stop: follow((kind) => kind === "tick" && update()) };
}

export function now(query) {
  const state = { span: Number(query.get("span")) || 300, end: Number(query.get("t")) || null };
  const when = { span: () => state.span, end: () => state.end };
  const charts = [
    chart("Messages", [{ name: "received", label: "in", colour: "accent", fill: true }, { name: "sent", label: "out", colour: "second" }], rate, when),
    chart("Traffic", [{ name: "bytes_in", label: "in", colour: "accent", fill: true }, { name: "bytes_out", label: "out", colour: "second" }], byteRate, { ...when, binary: true }),
    chart("Connections", [{ name: "connections", label: "clients", colour: "accent", fill: true }, { name: "offline", label: "away", colour: "second" }], count, when),
    chart("Coming and going", [{ name: "opened", label: "opened", colour: "accent" }, { name: "closed", label: "closed", colour: "second" }, { name: "logins_refused", label: "refused", colour: "bad" }], rate, when),
    chart("Losses", [{ name: "dropped", label: "dropped", colour: "bad", fill: true }, { name: "rights_refused", label: "not allowed", colour: "warn" }], rate, when),
    chart("What waits", [{ name: "waiting", label: "in memory", colour: "accent", fill: true }, { name: "stored", label: "on disk", colour: "second" }], bytes, { ...when, binary: true }),
    chart("Commits of the store", [{ name: "commit_p99", label: "99 %", colour: "second" }, { name: "commit_p50", label: "half", colour: "accent" }], milliseconds, when),
    chart("Event loop late by", [{ name: "lag_p99", label: "99 %", colour: "accent" }, { name: "lag", label: "worst", colour: "warn" }], milliseconds, when),
    chart("Processor", [{ name: "cpu", label: "of a core", colour: "accent", fill: true }], percent, when),
    chart("Memory", [{ name: "memory", label: "resident", colour: "accent", fill: true }], bytes, { ...when, binary: true }),
  ];
  const chosen = () => {
    for (const [seconds, each] of buttons) each.setAttribute("aria-pressed", String(seconds === state.span));
    hold.setAttribute("aria-pressed", String(state.end !== null));
    hold.textContent = state.end === null ? "Hold" : `Held at ${clock(state.end)}: go on`;
    const given = new URLSearchParams({ span: state.span, ...(state.end ? { t: state.end } : {}) });
    history.replaceState(null, "", `#/now?${given}`);
    charts.forEach((each) => each.update());
  };
  const buttons = SPANS.map(([seconds, label]) => [
    seconds,
    h("button", { type: "button", onclick: () => ((state.span = seconds), chosen()) }, label),
  ]);
  const hold = h("button", { type: "button", title: "The address of the page names this moment then", onclick: () => ((state.end = state.end === null ? live.tick.time : null), chosen()) });
  const bar = h("div", { class: "bar" }, h("div", { class: "group", role: "group", "aria-label": "How far back" }, buttons.map(([, each]) => each)), hold);
  chosen();
  const processes = workers();
  const stop = () => [processes, ...charts].forEach((each) => each.stop());
  return { element: h("div", { class: "view" }, bar, processes.element, h("div", { class: "charts" }, charts)), stop };
}
