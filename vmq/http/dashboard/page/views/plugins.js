// Plugins: whether they run, what their hooks say and how long they take.

import { get, post } from "../api.js";
import { confirmed, fill, h } from "../dom.js";
import { count, milliseconds, rate } from "../format.js";
import { actions, attempt, button, failed, nothing, panel, repeat, table } from "../widgets.js";

export function plugins() {
  const said = h("div", {});
  const details = h("div", {});
  let before = new Map();
  let when = 0;
  const list = table(
    [
      { name: "name", title: "plugin", show: (row) => row.name, kind: "name" },
      { name: "status", title: "", show: (row) => row.status },
      { name: "breaker", title: "breaker", show: (row) => row.breaker },
      { name: "errors", title: "errors", show: (row) => count(row.errors), kind: "number" },
      { name: "timeouts", title: "timeouts", show: (row) => count(row.timeouts), kind: "number" },
      { name: "hooks", title: "hooks", show: (row) => row.hooks, kind: "name" },
    ],
    { label: "Plugins", key: (row) => row.name, chosen: (row) => choose(row) },
  );
  const hooks = table(
    [
      { name: "plugin", title: "plugin", show: (row) => row.plugin, kind: "name" },
      { name: "hook", title: "hook", show: (row) => row.hook, kind: "name" },
      { name: "rate", title: "calls", show: (row) => rate(row.rate), kind: "number" },
      { name: "accepts", title: "accepted", show: (row) => rate(row.accepts), kind: "number" },
      { name: "refuses", title: "refused", show: (row) => rate(row.refuses), kind: "number" },
      { name: "calls", title: "in all", show: (row) => count(row.calls), kind: "number" },
      { name: "share", title: "of a core", show: (row) => `${row.share.toFixed(1)} %`, kind: "number" },
      { name: "p50", title: "half within", show: (row) => milliseconds(row.p50), kind: "number" },
      { name: "p99", title: "99 % within", show: (row) => milliseconds(row.p99), kind: "number" },
      { name: "errors", title: "errors", show: (row) => count(row.errors + row.timeouts), kind: "number" },
    ],
    { label: "Hooks", key: (row) => `${row.plugin}\n${row.hook}` },
  );

  function choose(row) {
    const where = h("div", {});
    const act = (label, path, question) =>
      button(label, async () => {
        if (question && !(await confirmed(question, label))) return;
        await attempt(where, () => post(path, { name: row.name }), (answer) => `${answer.name}: ${answer.status}. ${answer.opened || ""}`);
        look();
      });
    fill(
      details,
      panel(
        row.name,
        h("p", { class: "hint" }, [row.source, row.problem].filter(Boolean).join(": ")),
        actions(act("Reload", "/plugin/reload"), row.status === "running" ? act("Disable", "/plugin/disable", `Disable ${row.name}? What it decides is decided by others then, or by nobody.`) : act("Enable", "/plugin/enable")),
        where,
      ),
    );
  }

  const quiet = nothing("No hook was called yet.");
  async function look() {
    try {
      const [all, called] = await Promise.all([get("/plugins", { limit: 200 }), get("/live/hooks")]);
      list.show(all.rows);
      const now = performance.now() / 1000;
      const span = now - when;
      const rows = called.rows.slice(0, 200).map((row) => {
        const old = before.get(`${row.plugin}\n${row.hook}`);
        const grown = (name) => (old && when ? Math.max(0, row[name] - old[name]) / span : 0);
        return { ...row, rate: grown("calls"), accepts: grown("accepted"), refuses: grown("refused"), share: 100 * grown("seconds") };
      });
      before = new Map(called.rows.map((row) => [`${row.plugin}\n${row.hook}`, row]));
      when = now;
      hooks.show(rows);
      quiet.hidden = rows.length > 0;
      fill(said);
    } catch (error) {
      failed(said, error);
    }
  }

  const stop = repeat(look, 2);
  return { element: h("div", { class: "view" }, said, panel("Plugins", list), details, panel("Hooks", quiet, hooks)), stop };
}
