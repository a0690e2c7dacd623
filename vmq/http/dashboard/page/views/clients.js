// Clients: who is there or has a durable session, found by text or by the language of --where.

import { get, remove } from "../api.js";
import { confirmed, fill, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { actions, attempt, button, failed, field, nothing, panel, problem, repeat, table } from "../widgets.js";

const MOST = 200;
const FILTERS = 40;
const SORTS = [["", "as they are"], ["-queue_size", "most queued"], ["-dropped", "most dropped"], ["-waiting_acks", "most unacknowledged"], ["-session_started_at", "connected last"], ["client_id", "by name"]];

const COLUMNS = [
  { name: "client_id", title: "client", show: (row) => row.client_id, kind: "name" },
  { name: "online", title: "", show: (row) => (row.is_online ? "connected" : row.is_online === null ? "elsewhere" : "away") },
  { name: "user", title: "user", show: (row) => row.user ?? "" },
  { name: "peer", title: "address", show: (row) => (row.peer_host ? `${row.peer_host}${row.peer_port ? `:${row.peer_port}` : ""}` : "") },
  { name: "queue", title: "queued", show: (row) => count(row.queue_size), kind: "number" },
  { name: "acks", title: "unacked", show: (row) => count(row.waiting_acks), kind: "number" },
  { name: "dropped", title: "dropped", show: (row) => count(row.dropped), kind: "number" },
];

const quoted = (text) => JSON.stringify(text);

/** What is asked for: what looks like a condition is one, anything else is a part of a client id. */
export function condition(text) {
  const wanted = text.trim();
  if (!wanted) return "";
  if (/^[a-z_]+\s*(=|!=|<|>|~)/.test(wanted) || /\b(and|or|not)\b/.test(wanted)) return wanted;
  return `client_id ~ ${quoted(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))}`;
}

export function clients(query) {
  const search = h("input", { type: "search", value: query.get("client") || query.get("where") || "", placeholder: "part of a client id, or queue_size > 100 and is_online = true", spellcheck: "false" });
  const sort = h("select", {}, SORTS.map(([value, label]) => h("option", { value }, label)));
  sort.value = query.get("sort") || "";
  const found = h("p", { class: "hint" });
  const said = h("div", {});
  const told = h("div", {});
  const details = h("div", {});
  const list = table(COLUMNS, { label: "Clients", key: (row) => `${row.mountpoint}\n${row.client_id}`, chosen: (row) => open(row) });

  async function look() {
    try {
      const answer = await get("/sessions", { where: condition(search.value), sort: sort.value, limit: MOST });
      list.show(answer.rows);
      fill(said);
      fill(found, answer.more ? `The first ${MOST}; there are more: search, or vmq session list.` : answer.rows.length ? `${answer.rows.length} found.` : "Nobody.");
    } catch (error) {
      failed(said, error);
    }
  }

  async function open(row) {
    const one = { client_id: row.client_id, mountpoint: row.mountpoint };
    try {
      const [session, queue] = await Promise.all([get("/session", one), get("/queue", { ...one, limit: 20 }).catch(() => ({ rows: [], more: false }))]);
      fill(details, detail(session, queue, told, () => open(row), look));
      details.scrollIntoView({ block: "nearest" });
    } catch (error) {
      fill(details, problem(error));
    }
  }

  const ask = (event) => {
    event?.preventDefault();
    history.replaceState(null, "", `#/clients?${new URLSearchParams({ where: search.value, sort: sort.value })}`);
    look();
  };
  sort.addEventListener("change", ask);
  const form = h("form", { class: "bar", role: "search", onsubmit: ask }, field("Search", search), field("Order", sort), h("button", { class: "primary" }, "Look"));
  const stop = repeat(look, 5);
  return { element: h("div", { class: "view" }, form, said, h("section", { class: "panel" }, found, list), told, details), stop };
}

function detail(session, queue, said, again, listed) {
  const one = { client_id: session.client_id, mountpoint: session.mountpoint };
  const act = (question, action, work, done) =>
    button(action, async () => {
      if (!(await confirmed(question, action))) return;
      if (await attempt(said, work, done)) {
        await again().catch(() => {});
        listed();
      }
    }, "danger");
  const facts = [
    ["state", session.is_online ? `connected since ${session.session_started_at ?? ""}` : `away since ${session.offline_since ?? "?"}`],
    ["session", session.clean_session ? "ends with its connection" : "durable"],
    ["keep alive", session.keep_alive === null ? "–" : `${session.keep_alive} s`],
    ["protocol", session.protocol === 3 ? "MQTT 3.1" : "MQTT 3.1.1"],
    ["node", session.node || "this one"],
  ];
  const peeked = table(
    [
      { name: "position", title: "", show: (row) => String(row.position) },
      { name: "state", title: "state", show: (row) => row.state },
      { name: "topic", title: "topic", show: (row) => row.topic, kind: "name" },
      { name: "qos", title: "QoS", show: (row) => String(row.qos), kind: "number" },
      { name: "size", title: "size", show: (row) => bytes(row.size), kind: "number" },
      { name: "payload", title: "payload", show: (row) => row.payload, kind: "name" },
    ],
    { label: "Queue" },
  );
  peeked.show(queue.rows);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, session.client_id),
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("p", { class: "links" }, h("a", { href: `#/why?${new URLSearchParams({ what: "receive", ...one })}` }, "Why does it get a message, or not?"), " ", h("a", { href: `#/trace?${new URLSearchParams(one)}` }, "Trace it")),
    h("h3", {}, "Subscriptions"),
    session.filters.length
      ? h("ul", { class: "filters" }, session.filters.slice(0, FILTERS).map((each) => h("li", {}, h("code", {}, each.filter), ` QoS ${each.qos}`)), session.filters.length > FILTERS ? h("li", {}, `and ${session.filters.length - FILTERS} more`) : null)
      : nothing("None."),
    h("h3", {}, "Queue"),
    queue.rows.length ? peeked : nothing("Empty."),
    queue.more ? h("p", { class: "hint" }, "The first 20; vmq queue peek shows more.") : null,
    actions(
      act(`Close the connection of ${session.client_id}? Its will is published.`, "Disconnect", () => remove("/session", one), "Disconnected."),
      act(`End the session of ${session.client_id}, with its queue and its subscriptions?`, "End session", () => remove("/session", { ...one, cleanup: true }), "The session has ended."),
      act(`Drop all that waits for ${session.client_id}?`, "Purge queue", () => remove("/queue", one), (answer) => `${answer.purged} messages were dropped.`),
    ),
  );
}
