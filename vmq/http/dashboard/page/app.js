// The frame of the page: who may come in, the views, and what is said above all of them.

import { ApiError, get, key, post } from "./api.js";
import { ICONS, fill, h, icon, put, say } from "./dom.js";
import { clock, duration, plural } from "./format.js";
import { follow, has, live, run } from "./live.js";
import { redraw } from "./widgets.js";
import { wrong } from "./views/wrong.js";
import { now } from "./views/now.js";
import { clients } from "./views/clients.js";
import { topics } from "./views/topics.js";
import { streams } from "./views/streams.js";
import { cluster } from "./views/cluster.js";
import { plugins } from "./views/plugins.js";
import { pipelines } from "./views/pipelines.js";
import { why } from "./views/why.js";
import { trace } from "./views/trace.js";

const always = () => true;
/** Name -> what it is called, what makes it (gives an element and what ends it), and when it is there. */
const VIEWS = {
  wrong: { title: "What is wrong", make: wrong, when: always },
  now: { title: "Now", make: now, when: always },
  clients: { title: "Clients", make: clients, when: always },
  topics: { title: "Topics", make: topics, when: always },
  streams: { title: "Streams and jobs", make: streams, when: () => has("streams") || has("jobs") },
  cluster: { title: "Cluster", make: cluster, when: () => has("cluster") },
  plugins: { title: "Plugins", make: plugins, when: () => has("plugins") },
  pipelines: { title: "Pipelines", make: pipelines, when: () => has("pipelines") },
  why: { title: "Why", make: why, when: always },
  trace: { title: "Trace", make: trace, when: () => live.hello?.scope === "all" },
};
const THEME = "vmq.theme";

const root = document.getElementById("app");

// Where we are: #/VIEW?name=value

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path in VIEWS ? path : "wrong", query: new URLSearchParams(query || "") };
}

/** Goes to a view; the link of it can be sent to somebody else. */
export function linkTo(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

// Coming in

/** Gives the token of the link back for a key, if there is one; the address keeps no trace of it. */
async function redeem() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", "#/wrong");
  try {
    key.set((await post("/live/page", { token: found[1] })).key);
    return "";
  } catch (error) {
    return error.message;
  }
}

function login(reason) {
  const said = h("p", { class: "problem", role: "alert" }, reason);
  const input = h("input", { type: "password", name: "key", autocomplete: "off", spellcheck: "false", required: true, placeholder: "vmq_…" });
  const user = h("input", { name: "user", autocomplete: "username", spellcheck: "false", required: true });
  const password = h("input", { type: "password", name: "password", autocomplete: "current-password", required: true });
  const enterAs = async (event) => {
    event.preventDefault();
    try {
      key.set((await post("/live/login", { user: user.value, password: password.value })).key);
      begin();
    } catch (error) {
      said.hidden = false;
      say(said, error.message);
    }
  };
  const enter = async (event) => {
    event.preventDefault();
    key.set(input.value.trim());
    try {
      await get("/live/hooks");
      begin();
    } catch (error) {
      key.forget();
      said.hidden = false;
      say(said, error instanceof ApiError && error.status === 401 ? "This is no API key of this broker." : error.message);
    }
  };
  fill(
    root,
    h(
      "main",
      { class: "login" },
      h("img", { src: "/page/icon.svg", alt: "", width: "48", height: "48" }),
      h("h1", {}, "vmq"),
      h("p", {}, "This page shows a broker to those who run it. On its machine"),
      h("pre", {}, "vmq open"),
      h("p", {}, "makes a link that is good for one browser. Or enter an API key (", h("code", {}, "vmq api-key create"), "):"),
      h("form", { onsubmit: enter }, h("label", { class: "field" }, h("span", {}, "API key"), input), h("button", { class: "primary" }, "Enter")),
      h("p", {}, "Or come in as a user whom the listener names (", h("code", {}, "page_users"), "):"),
      h(
        "form",
        { class: "user", onsubmit: enterAs },
        h("label", { class: "field" }, h("span", {}, "User"), user),
        h("label", { class: "field" }, h("span", {}, "Password"), password),
        h("button", { class: "primary" }, "Log in"),
      ),
      said,
      h("p", { class: "hint" }, h("a", { href: "/links" }, "What there is without: metrics, health, manual")),
    ),
  );
  said.hidden = !reason;
  input.focus();
}

// The frame

function themed() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return localStorage.getItem(THEME) || (dark ? "dark" : "light");
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  redraw();
}

class Frame {
  constructor() {
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.nav = h("nav", { "aria-label": "Views" });
    this.node = h("span", { class: "node" });
    this.health = h("span", { class: "chip" });
    this.pulse = h("span", { class: "pulse" });
    this.banner = h("div", { class: "banner", role: "status", hidden: true });
    // Changes of health, and nothing else, are spoken.
    this.spoken = h("div", { class: "unseen", "aria-live": "polite" });
    this.links = new Map();
    this.parts = "";
    const theme = h("button", { type: "button", class: "plain", "aria-label": "Dark or light", onclick: () => this.turnTheme() }, icon(ICONS.sun));
    const leave = h("button", { type: "button", class: "plain", onclick: () => this.leave() }, "Leave");
    fill(
      root,
      h("a", { class: "skip", href: "#main", onclick: (event) => this.skip(event) }, "To the content"),
      h("header", { class: "top" }, h("img", { src: "/page/icon.svg", alt: "", width: "26", height: "26" }), h("strong", {}, "vmq"), this.node, this.health, h("span", { class: "space" }), this.pulse, theme, leave),
      this.banner,
      h("div", { class: "body" }, this.nav, this.main),
      this.spoken,
    );
    this.stops = [follow((kind) => this.changed(kind))];
    const moved = () => this.show();
    addEventListener("hashchange", moved);
    this.stops.push(() => removeEventListener("hashchange", moved));
    document.body.addEventListener("keydown", (event) => this.pressed(event));
  }

  turnTheme() {
    const next = themed() === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, next);
    setTheme(next);
  }

  leave() {
    key.forget();
    location.reload();
  }

  skip(event) {
    event.preventDefault();
    this.main.focus();
  }

  /** 1 to 9 and 0 go to the views, as they stand in the list. */
  pressed(event) {
    const isTyping = event.target.closest("input, textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.altKey || event.metaKey || !/^[0-9]$/.test(event.key)) return;
    const link = [...this.links.values()][(Number(event.key) + 9) % 10];
    if (link) location.hash = link.getAttribute("href");
  }

  changed(kind) {
    if (kind === "tick" || kind === "hello") {
      this.list();
      this.tell();
    }
    if (kind === "hello") {
      say(this.node, live.hello.node);
      document.title = `vmq · ${live.hello.node}`;
    }
    if (kind === "tick" && !this.view) this.show();
    if (kind === "tick" || kind === "state" || kind === "stale") this.warn();
  }

  /** The views that there are; one whose part does not run is absent. */
  list() {
    const there = Object.entries(VIEWS).filter(([, view]) => view.when());
    const parts = there.map(([name]) => name).join();
    if (parts === this.parts) return;
    this.parts = parts;
    this.links = new Map(there.map(([name, view]) => [name, h("a", { href: linkTo(name) }, icon(ICONS[name]), view.title)]));
    fill(this.nav, [...this.links.values()]);
    this.mark();
  }

  mark() {
    for (const [name, link] of this.links) {
      if (name === this.view) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone the row is longer than the screen
      } else link.removeAttribute("aria-current");
    }
  }

  tell() {
    const tick = live.tick;
    if (!tick) return;
    const words = { ok: "well", degraded: `degraded: ${plural(tick.reasons.length, "reason")}`, failing: `failing: ${plural(tick.reasons.length, "reason")}` };
    if (this.status !== tick.status) {
      if (this.status) say(this.spoken, `The broker is ${words[tick.status]}`);
      this.status = tick.status;
      this.health.className = `chip chip-${tick.status}`;
    }
    say(this.health, words[tick.status]);
  }

  warn() {
    const isLive = live.state === "live";
    say(this.pulse, isLive ? "live" : "no news");
    this.pulse.classList.toggle("is-live", isLive);
    document.documentElement.classList.toggle("stale", live.state === "stale");
    let text = "";
    if (live.state === "stale") {
      const since = live.tick ? clock(live.tick.time) : "the start";
      text = `No news from the broker since ${since} (${duration((performance.now() - live.lostAt) / 1000)}). What you see is from then; this page tries again every second.`;
    } else if (live.notice && performance.now() - live.notice.at < 15000) text = live.notice.text;
    this.banner.hidden = !text;
    this.banner.classList.toggle("banner-bad", live.state === "stale");
    say(this.banner, text);
  }

  show() {
    if (!live.tick) return;
    const { view, query } = place();
    const name = VIEWS[view].when() ? view : "wrong";
    this.stopView?.();
    this.view = name;
    const made = VIEWS[name].make(query);
    this.stopView = made.stop;
    fill(this.main, h("h1", {}, VIEWS[name].title), made.element);
    this.mark();
  }

  end() {
    this.stopView?.();
    this.stops.forEach((stop) => stop());
  }
}

async function begin() {
  const frame = new Frame();
  put(frame.main, h("p", { class: "nothing" }, "Asking the broker …"));
  const reason = await run();
  frame.end();
  key.forget();
  login(reason);
}

setTheme(themed());
const problem = await redeem();
if (problem) login(problem);
else if (key.get()) begin();
else login("");
