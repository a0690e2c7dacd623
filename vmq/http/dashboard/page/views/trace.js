// Trace: what one client sends and gets, and what plugins say of it, as it happens.

import { lines } from "../api.js";
import { fill, h, say } from "../dom.js";
import { field } from "../widgets.js";

/** Lines that are kept on the page. */
const KEPT = 500;

export function trace(query) {
  const client = h("input", { required: true, spellcheck: "false", value: query.get("client_id") || "", placeholder: "client id" });
  const state = h("p", { class: "hint", role: "status" }, "Passwords are not shown. The client need not be connected.");
  const out = h("ol", { class: "trace", tabindex: "0", role: "region", "aria-label": "Trace" });
  const start = h("button", { class: "primary" }, "Trace");
  let asked = null;

  function show(line) {
    const way = line.includes(" -> ") || line.startsWith("->") ? "in" : line.includes(" <- ") || line.startsWith("<-") ? "out" : "hook";
    const atEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 40;
    out.append(h("li", { class: `trace-${way}` }, line));
    while (out.children.length > KEPT) out.firstChild.remove();
    if (atEnd) out.scrollTop = out.scrollHeight;
  }

  async function run(event) {
    event?.preventDefault();
    asked?.abort();
    const mine = (asked = new AbortController());
    fill(out);
    history.replaceState(null, "", `#/trace?${new URLSearchParams({ client_id: client.value })}`);
    say(start, "Trace anew");
    try {
      for await (const line of lines("/live/trace", { client_id: client.value, rate: 100 }, mine.signal)) {
        say(state, `Tracing ${client.value}.`);
        if (line) show(line);
      }
      say(state, "The trace ended: the broker closed it.");
    } catch (error) {
      if (!mine.signal.aborted) say(state, `The trace ended: ${error.message}`);
    }
  }

  if (client.value) run();
  const form = h("form", { class: "bar", onsubmit: run }, field("Client", client), start);
  return { element: h("div", { class: "view" }, form, state, out), stop: () => asked?.abort() };
}
