// The last hour of the broker's figures, a row a second, and what is told with them.

import { ApiError, binary, events } from "./api.js";

export const HOUR = 3600;
/** Seconds without news after which the page is stale. */
const STALE = 4;
const RETRY = 1000;

export const live = {
  hello: null,
  tick: null,
  worst: {},
  warnings: [],
  times: [],
  columns: {},
  /** "connecting", "live", "stale" or "refused". */
  state: "connecting",
  heard: 0,
  /** What happened to the connection that people should know: {text, at}. */
  notice: null,
};

const listeners = new Set();
let asked = null;

/** Has `changed(kind)` called for each piece of news, until the function that is returned is called. */
export function follow(changed) {
  listeners.add(changed);
  return () => listeners.delete(changed);
}

function tell(kind) {
  for (const each of listeners) each(kind);
}

function become(state) {
  if (live.state !== state) {
    live.state = state;
    tell("state");
  }
}

async function loadHistory() {
  const data = await binary("/live/history");
  const size = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
  let place = 4 + size;
  live.times = Array.from(new Uint32Array(data, place, head.rows));
  live.columns = {};
  for (const name of head.names) {
    place += 4 * head.rows;
    live.columns[name] = Array.from(new Float32Array(data, place, head.rows));
  }
  tell("history");
}

function add(tick) {
  live.tick = tick;
  const last = live.times.at(-1) || 0;
  if (tick.time <= last) return;
  live.times.push(tick.time);
  live.hello.series.forEach((name, place) => (live.columns[name] ||= []).push(tick.values[place]));
  if (live.times.length > HOUR + 60) {
    live.times.splice(0, 60);
    for (const column of Object.values(live.columns)) column.splice(0, 60);
  }
}

async function take(kind, data) {
  live.heard = performance.now();
  if (kind === "hello") {
    const away = live.hello !== null && live.lostAt ? Math.round((performance.now() - live.lostAt) / 1000) : 0;
    if (live.lostAt) {
      const anew = live.hello.run !== data.run;
      live.notice = { text: `The broker is back after ${away} s${anew ? ": it was started anew" : ""}.`, at: performance.now() };
      live.lostAt = 0;
    }
    live.hello = data;
    await loadHistory();
  } else if (kind === "tick") {
    const last = live.times.at(-1);
    if (last && data.time - last > 3) await loadHistory(); // ticks were left out for us
    add(data);
  } else live[kind] = data;
  become("live");
  tell(kind);
}

/** Connects, and again whenever the connection ends, until the key is refused. Resolves to why it is. */
export async function run() {
  const watch = setInterval(() => {
    if (live.state === "live" && performance.now() - live.heard > STALE * 1000) {
      live.lostAt ||= live.heard;
      become("stale");
      asked?.abort(); // a connection that says nothing is as good as none
    }
    if (live.state === "stale") tell("stale");
  }, 500);
  try {
    while (true) {
      asked = new AbortController();
      try {
        for await (const [kind, data] of events("/live", asked.signal)) await take(kind, data);
      } catch (error) {
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          become("refused");
          return error.status === 401 ? "The key of this page is good no more." : error.message;
        }
      }
      if (live.hello !== null) {
        live.lostAt ||= performance.now();
        become("stale");
      }
      await new Promise((done) => setTimeout(done, RETRY));
    }
  } finally {
    clearInterval(watch);
  }
}

/** Ends it; `run` is not called again before the page is loaded anew. */
export const value = (name) => live.columns[name]?.at(-1) ?? 0;
export const has = (part) => live.tick?.parts.includes(part) ?? false;

/** The rows of some columns within a span of seconds that ends at `end` (null: now). */
export function window_(names, span, end = null) {
  const last = end ?? live.times.at(-1) ?? 0;
  const from = lowerBound(live.times, last - span);
  const to = lowerBound(live.times, last + 1);
  return [live.times.slice(from, to), ...names.map((name) => (live.columns[name] || []).slice(from, to))];
}

function lowerBound(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** By how much a figure grows a second, over the last ten minutes; 0 if it does not, or too little is known. */
export function slope(name) {
  const [times, values] = window_([name], 600);
  const n = times.length;
  if (n < 60) return 0;
  const t0 = times[0];
  let st = 0, sv = 0, stt = 0, stv = 0;
  for (let i = 0; i < n; i += 1) {
    const t = times[i] - t0;
    st += t;
    sv += values[i];
    stt += t * t;
    stv += t * values[i];
  }
  return (n * stv - st * sv) / (n * stt - st * st || 1);
}
