// Why: what would become of a publish, a subscription or a message, decision by decision. Nothing is done by asking.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { field, problem, table } from "../widgets.js";

const KINDS = {
  publish: { path: "/why", label: "a publish", client: "Who publishes", topic: "Topic", send: (client, topic, qos) => ({ client_id: client, topic, qos }) },
  subscribe: { path: "/why/subscribe", label: "a subscription", client: "Who subscribes", topic: "Filter", send: (client, topic, qos) => ({ client_id: client, filter: topic, qos }) },
  receive: { path: "/why/receive", label: "receiving", client: "Who is to receive", topic: "Topic", send: (client, topic, qos) => ({ client_id: client, topic, qos }) },
};

export function why(query) {
  const what = h("select", {}, Object.entries(KINDS).map(([name, each]) => h("option", { value: name }, each.label)));
  what.value = query.get("what") in KINDS ? query.get("what") : "publish";
  const client = h("input", { required: true, spellcheck: "false", value: query.get("client_id") || "" });
  const topic = h("input", { required: true, spellcheck: "false", value: query.get("topic") || "" });
  const qos = h("select", {}, [0, 1, 2].map((each) => h("option", { value: String(each) }, `QoS ${each}`)));
  const tree = query.get("mountpoint") || "";
  const answer = h("div", { "aria-live": "off" });
  const labels = [field("Who", client), field("Topic", topic)];

  const named = () => {
    labels[0].firstChild.textContent = KINDS[what.value].client;
    labels[1].firstChild.textContent = KINDS[what.value].topic;
  };
  what.addEventListener("change", named);
  named();

  const ask = async (event) => {
    event?.preventDefault();
    const kind = KINDS[what.value];
    history.replaceState(null, "", `#/why?${new URLSearchParams({ what: what.value, client_id: client.value, topic: topic.value })}`);
    try {
      fill(answer, explained(await get(kind.path, { ...kind.send(client.value, topic.value, Number(qos.value)), mountpoint: tree })));
    } catch (error) {
      fill(answer, problem(error));
    }
  };
  if (client.value && topic.value) ask();
  const form = h("form", { class: "bar", onsubmit: ask }, field("Explain", what), labels, field("At", qos), h("button", { class: "primary" }, "Why?"));
  return { element: h("div", { class: "view" }, form, answer), stop: () => {} };
}

function explained(found) {
  const good = found.arrives ?? found.granted ?? found.receives;
  const recipients = table(
    [
      { name: "client", title: "client", show: (row) => row.client_id, kind: "name" },
      { name: "filter", title: "filter", show: (row) => row.filter, kind: "name" },
      { name: "qos", title: "QoS", show: (row) => String(row.qos), kind: "number" },
      { name: "outcome", title: "", show: (row) => row.outcome },
      { name: "reason", title: "because", show: (row) => row.reason, kind: "name" },
    ],
    { label: "Subscriptions that match" },
  );
  recipients.show((found.recipients || []).slice(0, 200));
  return h(
    "section",
    { class: `verdict verdict-${good ? "ok" : "failing"}` },
    h("h2", {}, found.verdict),
    found.remedy ? h("p", {}, `What would help: ${found.remedy}`) : null,
    h("ol", { class: "steps" }, found.steps.map((each) => h("li", { class: `step-${each.verdict}` }, h("b", {}, each.step), h("span", {}, each.reason)))),
    found.recipients?.length ? recipients : null,
  );
}
