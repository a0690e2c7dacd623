// What views are made of: tiles, charts with a table beside them, tables, panels.

import { h, fill, put, say } from "./dom.js";
import { clock } from "./format.js";
import { follow, live, window_ } from "./live.js";

/** A part of a page under a heading. */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, title ? h("h2", {}, title) : null, children);
}

/** What a view shows while there is nothing. */
export const nothing = (text) => h("p", { class: "nothing" }, text);

/** What went wrong with what somebody asked for. */
export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error.message || String(error));
}

/** Says it where nothing else is said of it yet: who has it read aloud hears it once, however often it is tried again. */
export function failed(place, error) {
  if (place.textContent !== (error.message || String(error))) fill(place, problem(error));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const charts = new Set();
/** Steps of an axis that shows bytes. */
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

/** Has all charts drawn in the colours of now. */
export function redraw() {
  for (const each of charts) each();
}

/**
 * A chart of some series over time, with a table of the same for those who cannot see it.
 * `lines` are {name, label, colour}; `show` formats a value; `span()` and `end()` say which seconds.
 */
export function chart(title, lines, show, { span, end, height = 150, binary = false }) {
  const legend = h("div", { class: "legend" });
  const figures = lines.map((line) => {
    const figure = h("b", {});
    put(legend, h("span", { class: `key key-${line.colour}` }, line.label, " ", figure));
    return figure;
  });
  const place = h("div", { class: "plot", "aria-hidden": "true" });
  const rows = h("tbody", {});
  const head = h("tr", {}, h("th", { scope: "col" }, "time"), lines.map((line) => h("th", { scope: "col" }, line.label)));
  const details = h("details", {}, h("summary", {}, "Table"), h("table", {}, h("thead", {}, head), rows));
  const box = h("section", { class: "panel chart" }, h("header", {}, h("h2", {}, title), legend), place, details);
  let plot = null;

  function options() {
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return {
      width: Math.max(200, place.clientWidth),
      height,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      padding: [8, 24, 0, 0], // at the right, room for half of the last time
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 70, values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
        { ...axis, size: 66, space: 34, ...(binary ? { incrs: BINARY } : {}), values: (_plot, values) => values.map((each) => show(each)) },
      ],
      series: [
        {},
        ...lines.map((line) => ({ stroke: colour(line.colour), width: 1.75, fill: line.fill ? `${colour(line.colour)}22` : undefined, points: { show: false } })),
      ],
      hooks: { setCursor: [pointed] },
    };
  }

  function data() {
    return window_(lines.map((line) => line.name), span(), end());
  }

  function pointed() {
    if (!plot) return;
    const at = plot.cursor.idx ?? plot.data[0].length - 1;
    lines.forEach((line, number) => say(figures[number], at >= 0 ? show(plot.data[number + 1][at] ?? 0) : "–"));
  }

  function draw() {
    if (!place.isConnected) return;
    plot?.destroy();
    plot = new uPlot(options(), data(), place);
    pointed();
  }

  function update() {
    if (!plot) draw();
    else if (!document.hidden) {
      plot.setData(data());
      pointed();
    }
    if (details.open) tabulate();
  }

  function tabulate() {
    const [times, ...columns] = data();
    const step = Math.max(1, Math.ceil(times.length / 12));
    const chosen = [];
    for (let i = times.length - 1; i >= 0; i -= step) chosen.push(i);
    fill(rows, chosen.map((i) => h("tr", {}, h("td", {}, clock(times[i])), columns.map((values) => h("td", {}, show(values[i]))))));
  }

  details.addEventListener("toggle", () => details.open && tabulate());
  const size = new ResizeObserver(() => plot && plot.setSize({ width: Math.max(200, place.clientWidth), height }));
  size.observe(place);
  const stop = follow((kind) => (kind === "tick" || kind === "history") && update());
  charts.add(draw);
  requestAnimationFrame(update);
  box.update = update;
  box.stop = () => {
    stop();
    size.disconnect();
    charts.delete(draw);
    plot?.destroy();
    plot = null;
  };
  return box;
}

/** A figure with its last five minutes as a line. `read` gives the text of now. */
export function tile(label, name, read, kind = "accent") {
  const figure = h("b", { class: "figure" });
  const canvas = h("canvas", { class: "spark", "aria-hidden": "true" });
  const box = h("div", { class: "tile" }, h("span", { class: "label" }, label), figure, canvas);
  function update() {
    say(figure, read());
    spark(canvas, window_([name], 300)[1], colour(kind));
  }
  const stop = follow((what) => (what === "tick" || what === "history") && update());
  charts.add(update);
  requestAnimationFrame(update);
  box.stop = () => {
    stop();
    charts.delete(update);
  };
  return box;
}

export function spark(canvas, values, stroke) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width) return;
  if (canvas.width !== width * ratio) canvas.width = width * ratio;
  if (canvas.height !== height * ratio) canvas.height = height * ratio;
  const paper = canvas.getContext("2d");
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, width, height);
  if (values.length < 2) return;
  const high = Math.max(...values, 1e-9);
  const x = (i) => width - ((values.length - 1 - i) * width) / 299;
  const y = (value) => height - 2 - (value / high) * (height - 4);
  paper.beginPath();
  values.forEach((value, i) => (i ? paper.lineTo(x(i), y(value)) : paper.moveTo(x(i), y(value))));
  paper.strokeStyle = stroke;
  paper.lineWidth = 1.5;
  paper.stroke();
  paper.lineTo(width, height);
  paper.lineTo(x(0), height);
  paper.globalAlpha = 0.12;
  paper.fillStyle = stroke;
  paper.fill();
  paper.globalAlpha = 1;
}

/**
 * A table that is kept: rows are changed where they differ, so that focus and selection stay.
 * `columns` are {name, title, show(row), kind}; a show may give a text or an element.
 */
export function table(columns, { label, chosen = null, key = (row) => JSON.stringify(row) }) {
  const body = h("tbody", {});
  const head = h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.kind || null }, each.title)));
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, head), body));
  let present = new Map();

  function cells(row, line) {
    columns.forEach((each, place) => {
      const value = each.show(row);
      const cell = line.children[place];
      if (value instanceof Node) {
        if (cell.dataset.value !== each.name + key(row)) {
          cell.dataset.value = each.name + key(row);
          fill(cell, value);
        }
      } else say(cell, value);
    });
  }

  box.hidden = true;
  box.show = (rows) => {
    box.hidden = !rows.length;
    const next = new Map();
    for (const row of rows) {
      const name = key(row);
      let line = present.get(name);
      if (!line) {
        line = h("tr", {}, columns.map((each) => h("td", { class: each.kind || null })));
        if (chosen) {
          line.classList.add("link");
          line.tabIndex = 0;
          line.addEventListener("click", () => chosen(line.row));
          line.addEventListener("keydown", (event) => event.key === "Enter" && event.target === line && chosen(line.row));
        }
      }
      line.row = row;
      cells(row, line);
      next.set(name, line);
    }
    const wanted = [...next.values()];
    if (wanted.length !== body.children.length || wanted.some((line, i) => body.children[i] !== line)) {
      const focused = document.activeElement;
      body.replaceChildren(...wanted);
      if (focused && body.contains(focused)) focused.focus();
    }
    present = next;
  };
  return box;
}

/** A label with what is asked for. */
export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

export const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind || null, onclick }, label);

/** Whether the key that the page has may change things. */
export const mayChange = () => live.hello?.scope === "all";

/** Buttons that change something; for a page that may only look, what would let it. */
export function actions(...buttons) {
  if (mayChange()) return h("div", { class: "buttons" }, buttons);
  return h("p", { class: "hint" }, "This page may only look. ", h("code", {}, "vmq open --change"), " opens one that may act.");
}

/** Does something, and says in `place` how it ended. */
export async function attempt(place, work, done) {
  try {
    const answer = await work();
    fill(place, h("p", { class: "done", role: "status" }, typeof done === "function" ? done(answer) : done));
    return answer;
  } catch (error) {
    fill(place, problem(error));
    return null;
  }
}

/** Calls `work` now and every so many seconds while the view is shown; returns what ends that. */
export function repeat(work, seconds = 2) {
  let ended = false;
  let timer = 0;
  const turn = async () => {
    if (!document.hidden && live.state === "live") await work();
    if (!ended) timer = setTimeout(turn, seconds * 1000);
  };
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
