// Pipelines: how far Spark is with each of its queries.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { count, duration, rate } from "../format.js";
import { failed, nothing, panel, repeat, table } from "../widgets.js";

const PREFIX = "vmq_plugin_spark_";

/** The samples of all metrics as rows: one a pipeline, or one a query. */
function gathered(rows, names) {
  const found = new Map();
  for (const row of rows) {
    const name = row.name.replace(PREFIX, "");
    if (!(name in names)) continue;
    const id = [row.labels.pipeline, row.labels.query].filter(Boolean).join(" · ");
    const one = found.get(id) || { id };
    one[names[name]] = (one[names[name]] || 0) + row.value;
    found.set(id, one);
  }
  return [...found.values()];
}

export function pipelines() {
  const said = h("div", {});
  const none = nothing("No pipeline was run yet: vmq spark run sensors.");
  const all = table(
    [
      { name: "id", title: "pipeline", show: (row) => row.id, kind: "name" },
      { name: "up", title: "", show: (row) => (row.up ? "running" : "not running") },
      { name: "restarts", title: "restarts", show: (row) => count(row.restarts ?? 0), kind: "number" },
    ],
    { label: "Pipelines", key: (row) => row.id },
  );
  const queries = table(
    [
      { name: "id", title: "query", show: (row) => row.id, kind: "name" },
      { name: "lag", title: "behind by", show: (row) => (row.lag === undefined ? "–" : count(row.lag)), kind: "number" },
      { name: "rate", title: "rows", show: (row) => rate(row.rate ?? 0), kind: "number" },
      { name: "rows", title: "in all", show: (row) => count(row.rows ?? 0), kind: "number" },
      { name: "batch", title: "batch", show: (row) => count(row.batch ?? 0), kind: "number" },
      { name: "took", title: "took", show: (row) => duration(row.took ?? 0), kind: "number" },
      { name: "late", title: "too late", show: (row) => count(row.late ?? 0), kind: "number" },
    ],
    { label: "Queries", key: (row) => row.id },
  );
  async function look() {
    try {
      const { rows } = await get("/live/samples", { prefix: PREFIX });
      const found = gathered(rows, { pipeline_up: "up", pipeline_restarts: "restarts" });
      all.show(found.slice(0, 100));
      queries.show(gathered(rows, { query_lag: "lag", query_rows_per_second: "rate", query_rows: "rows", query_batch: "batch", query_batch_seconds: "took", query_late: "late" }).slice(0, 100));
      none.hidden = found.length > 0;
      fill(said);
    } catch (error) {
      failed(said, error);
    }
  }
  const stop = repeat(look, 2);
  return { element: h("div", { class: "view" }, said, panel("Pipelines", none, all), panel("Queries", queries)), stop };
}
