// Cluster: the nodes as this one sees them, and what changed while the page was open.

import { get, remove } from "../api.js";
import { confirmed, fill, h } from "../dom.js";
import { bytes, clock, count, milliseconds, plural } from "../format.js";
import { actions, attempt, button, failed, nothing, panel, repeat, table } from "../widgets.js";

const KEPT = 100;
/** What was seen to change, also while another view is shown. */
const seen = new Map();
const changes = [];

function note(rows) {
  for (const row of rows) {
    const state = row.is_up ? row.status : `${row.status}, not reached`;
    const before = seen.get(row.node);
    if (before !== undefined && before !== state) changes.unshift({ at: Date.now() / 1000, text: `${row.node}: ${before} → ${state}` });
    seen.set(row.node, state);
  }
  changes.length = Math.min(changes.length, KEPT);
}

/** What slots of durable sessions lack, in words. */
export function missingOf(rows) {
  const alone = rows.reduce((sum, row) => sum + (row.slots_without_follower || 0), 0);
  const waiting = rows.reduce((sum, row) => sum + (row.slots_waiting || 0), 0);
  return [alone ? `${plural(alone, "slot has", "slots have")} no copy.` : "", waiting ? `${plural(waiting, "slot of this node waits", "slots of this node wait")} for what others have.` : ""].filter(Boolean).join(" ");
}

export function cluster() {
  const said = h("div", {});
  const acted = h("div", {});
  const figures = h("div", {});
  const events = h("ol", { class: "log" });
  const split = h("p", { class: "problem", hidden: true });
  const lacks = h("p", { class: "problem", hidden: true });
  const list = table(
    [
      { name: "node", title: "node", show: (row) => row.node || "?", kind: "name" },
      { name: "self", title: "", show: (row) => (row.is_self ? "this one" : row.is_up ? "reached" : "not reached") },
      { name: "status", title: "status", show: (row) => row.status },
      { name: "address", title: "address", show: (row) => row.address },
      { name: "sessions", title: "sessions", show: (row) => count(row.sessions), kind: "number" },
      { name: "subscriptions", title: "filters", show: (row) => count(row.subscriptions), kind: "number" },
      { name: "trip", title: "round trip", show: (row) => (row.trip === undefined ? "" : milliseconds(1000 * row.trip)), kind: "number" },
      { name: "slots", title: "slots · copies", show: (row) => (row.slots_owned === null ? "" : `${count(row.slots_owned)} · ${count(row.slots_followed)}`), kind: "number" },
      { name: "waiting", title: "waits for it", show: (row) => `${count(row.waiting_messages)} · ${bytes(row.waiting_bytes)}`, kind: "number" },
    ],
    { label: "Nodes", key: (row) => row.node + row.address, chosen: (row) => choose(row) },
  );

  function choose(row) {
    if (row.is_self || !row.node) return fill(acted);
    const where = h("div", {});
    const take = button("Take it out", async () => {
      if (await confirmed(`Take ${row.node} out of the cluster? That is for nodes that will not come back.`, "Take it out")) await attempt(where, () => remove("/cluster/member", { node: row.node }), `${row.node} was taken out.`);
    }, "danger");
    return fill(acted, panel(row.node, actions(take), where));
  }

  async function look() {
    try {
      const [members, samples] = await Promise.all([get("/cluster/members", { limit: 200 }), get("/live/samples", { prefix: "cluster_" })]);
      note(members.rows);
      const trips = new Map(samples.rows.filter((row) => row.name === "cluster_round_trip_seconds").map((row) => [row.labels.peer, row.value]));
      list.show(members.rows.map((row) => ({ ...row, trip: trips.get(row.node) })));
      const gone = members.rows.filter((row) => ["joined", "drained"].includes(row.status) && !row.is_up);
      split.hidden = !gone.length;
      fill(split, gone.length ? `This node does not reach ${gone.map((row) => row.node).join(", ")}.` : "");
      const missing = missingOf(members.rows);
      lacks.hidden = !missing;
      fill(lacks, missing);
      fill(events, changes.length ? changes.map((each) => h("li", {}, h("time", {}, clock(each.at)), h("span", {}, each.text))) : h("li", {}, nothing("Nothing has changed since this page was opened.")));
      const shown = samples.rows.filter((row) => !Object.keys(row.labels).length && row.value).slice(0, 60);
      fill(figures, h("dl", { class: "facts" }, shown.map((row) => [h("dt", {}, row.name.replace("cluster_", "").replaceAll("_", " ")), h("dd", {}, row.name.endsWith("bytes") ? bytes(row.value) : count(row.value))])));
      fill(said);
    } catch (error) {
      failed(said, error);
    }
  }

  const stop = repeat(look, 1);
  return { element: h("div", { class: "view" }, said, split, lacks, panel("Nodes", list), acted, h("div", { class: "halves" }, panel("What changed", events), panel("Figures of this node", figures))), stop };
}
