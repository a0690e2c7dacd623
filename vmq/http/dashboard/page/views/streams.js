// Streams and jobs: what is kept, how far it reaches, and what waits for a worker.

import { get, post, remove } from "../api.js";
import { confirmed, fill, h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { has } from "../live.js";
import { actions, attempt, button, failed, nothing, panel, problem, repeat, table } from "../widgets.js";

const MOST = 200;

export function streams() {
  const said = h("div", {});
  const details = h("div", {});
  let chosen = "";
  // What was chosen last is shown, whichever answer comes first.
  let choice = 0;
  const choose = (stream) => {
    chosen = stream;
    return (choice += 1);
  };
  const list = table(
    [
      { name: "stream", title: "stream", show: (row) => row.stream, kind: "name" },
      { name: "filters", title: "filters", show: (row) => row.filters, kind: "name" },
      { name: "partitions", title: "partitions", show: (row) => (row.owned === null ? count(row.partitions) : `${row.owned} of ${row.partitions} here`), kind: "number" },
      { name: "messages", title: "messages", show: (row) => count(row.messages), kind: "number" },
      { name: "bytes", title: "size", show: (row) => bytes(row.bytes), kind: "number" },
      { name: "dropped", title: "dropped", show: (row) => count(row.dropped), kind: "number" },
      { name: "refused", title: "refused", show: (row) => count(row.refused), kind: "number" },
    ],
    { label: "Streams", key: (row) => row.stream, chosen: (row) => (choose(row.stream), show()) },
  );
  const queues = table(
    [
      { name: "queue", title: "queue", show: (row) => row.queue, kind: "name" },
      { name: "depth", title: "queued", show: (row) => count(row.depth), kind: "number" },
      { name: "jobs", title: "jobs", show: (row) => count(row.jobs), kind: "number" },
      { name: "dead", title: "dead", show: (row) => count(row.dead), kind: "number" },
      { name: "workers", title: "workers", show: (row) => count(row.workers), kind: "number" },
      { name: "oldest", title: "oldest", show: (row) => duration(row.oldest), kind: "number" },
      { name: "paused", title: "paused", show: (row) => (row.paused === "none" ? "" : row.paused) },
    ],
    { label: "Queues of jobs", key: (row) => `${row.mountpoint}\n${row.queue}`, chosen: (row) => job(row) },
  );

  const groups = table(
    [
      { name: "group", title: "group", show: (row) => row.group, kind: "name" },
      { name: "stream", title: "stream", show: (row) => row.stream },
      { name: "filter", title: "filter", show: (row) => row.filter, kind: "name" },
      { name: "members", title: "members", show: (row) => count(row.members), kind: "number" },
      { name: "lag", title: "lag", show: (row) => count(row.lag), kind: "number" },
    ],
    { label: "Consumer groups", key: (row) => `${row.group}\n${row.stream}\n${row.filter}\n${row.where}`, chosen: (row) => group(row) },
  );
  const groupsPanel = panel("Consumer groups", groups);
  groupsPanel.hidden = true;

  async function group(row) {
    const mine = choose("");
    try {
      const found = await get("/group", { group: row.group, stream: row.stream, filter: row.filter });
      if (mine !== choice) return;
      const parts = table(
        [
          { name: "partition", title: "partition", show: (each) => String(each.partition), kind: "number" },
          { name: "client", title: "read by", show: (each) => each.client || "nobody", kind: "name" },
          { name: "position", title: "at", show: (each) => count(each.position), kind: "number" },
          { name: "end", title: "of", show: (each) => count(each.end), kind: "number" },
          { name: "lag", title: "lag", show: (each) => count(each.lag), kind: "number" },
        ],
        { label: "Partitions of the group", key: (each) => String(each.partition) },
      );
      parts.show(found.partitions.slice(0, MOST));
      const idle = [...found.stalled.map((each) => `${each} is stalled`), ...found.standing_by.map((each) => `${each} stands by`)].slice(0, MOST);
      fill(details, panel(row.group, parts, idle.length ? h("p", { class: "hint" }, idle.join(", ")) : null));
    } catch (error) {
      if (mine === choice) fill(details, problem(error));
    }
  }

  async function show() {
    if (!chosen) return;
    const mine = choice;
    try {
      const stream = await get("/stream", { name: chosen });
      if (mine !== choice) return;
      const parts = table(
        [
          { name: "partition", title: "partition", show: (row) => String(row.partition), kind: "number" },
          { name: "owner", title: "owner or leader", show: (row) => row.owner || row.leader || (row.replicas.length ? "none" : "here") },
          { name: "earliest", title: "from", show: (row) => count(row.earliest), kind: "number" },
          { name: "end", title: "to", show: (row) => count(row.end), kind: "number" },
          { name: "segments", title: "files", show: (row) => count(row.segments), kind: "number" },
          { name: "bytes", title: "size", show: (row) => bytes(row.bytes), kind: "number" },
        ],
        { label: "Partitions", key: (row) => String(row.partition) },
      );
      parts.show(stream.partitions.slice(0, MOST));
      fill(details, panel(chosen, parts));
    } catch (error) {
      if (mine === choice) fill(details, problem(error));
    }
  }

  function job(row) {
    choose("");
    const one = { queue: row.queue, mountpoint: row.mountpoint };
    const where = h("div", {});
    const act = (label, work, done) => button(label, () => attempt(where, work, done).then(look));
    fill(
      details,
      panel(
        row.queue,
        actions(
          act("Pause", () => post("/jobs/pause", { ...one, what: "all" }), "Paused: no job comes in or goes out."),
          act("Resume", () => post("/jobs/resume", one), "Resumed."),
          act("Retry dead letters", () => post("/jobs/retry", one), (answer) => `${answer.changed ?? answer.jobs ?? 0} jobs were sent back.`),
          button("Delete queued jobs", async () => (await confirmed(`Delete what is queued in ${row.queue}?`, "Delete")) && attempt(where, () => remove("/jobs/queue", one), "Deleted.").then(look), "danger"),
        ),
        where,
      ),
    );
  }

  const empty = nothing("No streams yet: vmq stream create, or [streams.NAME].");
  const noJobs = nothing("No queues yet.");
  async function look() {
    try {
      const [kept, jobs, read] = await Promise.all([
        has("streams") ? get("/streams", { limit: MOST }) : null,
        has("jobs") ? get("/jobs/queues", { limit: MOST, sort: "-depth" }) : null,
        // Whoever coordinates the groups of a cluster may not answer now.
        has("streams") ? get("/groups", { limit: MOST, sort: "-lag" }).catch(() => null) : null,
      ]);
      if (kept) list.show(kept.rows);
      groups.show(read?.rows ?? []);
      groupsPanel.hidden = !read?.rows.length;
      if (jobs) queues.show(jobs.rows);
      empty.hidden = !kept || kept.rows.length > 0;
      noJobs.hidden = !jobs || jobs.rows.length > 0;
      fill(said);
    } catch (error) {
      failed(said, error);
    }
  }

  const stop = repeat(() => Promise.all([look(), show()]), 2);
  return {
    element: h("div", { class: "view" }, said, has("streams") ? panel("Streams", empty, list) : null, groupsPanel, has("jobs") ? panel("Queues of jobs", noJobs, queues) : null, details),
    stop,
  };
}
