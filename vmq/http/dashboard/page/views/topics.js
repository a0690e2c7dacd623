// Topics: a tree of what is published, and the messages of one topic by an ordinary subscription.

import { get } from "../api.js";
import { fill, h, say } from "../dom.js";
import { clock, count, plural, rate } from "../format.js";
import { live } from "../live.js";
import { MqttClient, shown } from "../mqtt.js";
import { attempt, failed, field, nothing, panel, repeat } from "../widgets.js";

/** Messages of the chosen topic that are kept on the page. */
const KEPT = 30;

/** The path of the top, as the broker has it: "" is the empty first level of the topics that begin with "/". */
const TOP = "\0";

/** Milliseconds until a lost connection is tried again: twice as many each time, up to the second figure. */
const AGAIN = 1000;
const LONGEST = 15000;

/** As whom the page speaks MQTT, while it is open. */
const account = { user: "", password: "" };

export function topics(query) {
  const open = new Set([TOP]);
  const tree = h("ul", { class: "tree", role: "tree", "aria-label": "Topics" });
  const said = h("div", {});
  const inspector = new Inspector();
  let branches = new Map();
  let drawn = "";

  async function look() {
    const paths = [...open];
    try {
      const answer = await get("/live/topics", { branches: JSON.stringify(paths) });
      branches = new Map(answer.branches.map((each) => [each.path, each]));
      fill(said);
      draw();
    } catch (error) {
      failed(said, error);
    }
  }

  /** The tree is built anew where its rows differ; figures alone are changed in place. */
  function draw() {
    const shape = JSON.stringify([...branches.values()].map((each) => [each.path, each.hidden > 0, each.rows.map((row) => [row.name, row.has_more])]));
    if (shape !== drawn) {
      drawn = shape;
      const focused = document.activeElement?.dataset?.path;
      fill(tree, items(TOP, 1));
      if (focused !== undefined) tree.querySelector(`[data-path="${CSS.escape(focused)}"]`)?.focus();
    }
    for (const line of tree.querySelectorAll("[data-path]")) {
      const row = line.row();
      if (!row) continue;
      line.firstChild.dataset.below = row.has_more ? ` ${plural(row.topics, "topic")}` : "";
      say(line.children[1], rate(row.rate));
      say(line.children[2], count(row.messages));
    }
  }

  /** A branch with all that is open below it: one line after the other, each with its level. */
  function items(path, level) {
    const branch = branches.get(path);
    if (!branch) return [];
    const found = branch.rows.flatMap((row) => item(path, row, level));
    if (branch.hidden > 0) found.push(h("li", { role: "none", class: `hint level-${Math.min(level, 12)}` }, `and ${live.tick?.workers ? "about " : ""}${count(branch.hidden)} more`));
    if (path === TOP && !found.length) found.push(h("li", { role: "none" }, nothing("Nothing is published yet: vmq pub -t hello -m world, or the form beside.")));
    return found;
  }

  function item(path, row, level) {
    const own = level === 1 ? row.name : `${path}/${row.name}`;
    const isOpen = open.has(own) && row.has_more;
    const line = h(
      "li",
      { class: `row level-${Math.min(level, 12)}`, role: "treeitem", tabindex: "0", "aria-level": String(level), "aria-expanded": row.has_more ? String(isOpen) : null, "data-path": own },
      h("span", { class: "name" }, row.name === "" ? "(empty)" : row.name),
      h("span", { class: "number" }),
      h("span", { class: "number" }),
    );
    line.row = () => branches.get(path)?.rows.find((each) => each.name === row.name);
    const turn = (wanted) => {
      if (!row.has_more || wanted === open.has(own)) return;
      if (wanted) open.add(own);
      else for (const each of [...open]) if (each === own || each.startsWith(`${own}/`)) open.delete(each);
      look();
    };
    line.addEventListener("click", () => {
      if (row.is_topic) inspector.watch(own);
      turn(!open.has(own));
    });
    line.addEventListener("keydown", (event) => {
      const steps = {
        ArrowDown: () => line.nextElementSibling?.focus(),
        ArrowUp: () => line.previousElementSibling?.focus(),
        ArrowRight: () => turn(true),
        ArrowLeft: () => turn(false),
        Enter: () => line.click(),
        " ": () => line.click(),
      };
      if (steps[event.key]) {
        event.preventDefault();
        steps[event.key]();
      }
    });
    return [line, ...(isOpen ? items(own, level + 1) : [])];
  }

  if (query.get("topic")) inspector.watch(query.get("topic"));
  const stop = repeat(look, 1);
  const head = h("div", { class: "row head", "aria-hidden": "true" }, h("span", {}, "topic"), h("span", { class: "number" }, "rate"), h("span", { class: "number" }, "messages"));
  const left = h("section", { class: "panel" }, h("h2", {}, "Published here"), said, head, tree);
  return { element: h("div", { class: "view halves topics" }, left, inspector.element), stop: () => (stop(), inspector.close()) };
}

/** The messages of one topic, and a form to publish; both by the page's own MQTT client. */
class Inspector {
  constructor() {
    this.client = null;
    this.topic = "";
    this.pause = AGAIN;
    this.title = h("h2", {}, "Messages");
    this.state = h("p", { class: "hint", role: "status" }, "Choose a topic to see its messages.");
    this.list = h("ol", { class: "messages" });
    this.said = h("div", {});
    this.user = h("input", { autocomplete: "off", value: account.user, placeholder: "anonymous" });
    this.password = h("input", { type: "password", autocomplete: "off", value: account.password });
    const topic = h("input", { name: "topic", required: true, spellcheck: "false", placeholder: "lamp/1/set" });
    const payload = h("input", { name: "payload", spellcheck: "false", placeholder: "on" });
    const retain = h("input", { type: "checkbox" });
    const send = (event) => {
      event.preventDefault();
      attempt(this.said, async () => (await this.connected()).publish(topic.value, payload.value, { qos: 1, retain: retain.checked }), () => `Published at QoS 1 at ${clock(Date.now() / 1000)}.`);
    };
    this.element = h(
      "div",
      {},
      h("section", { class: "panel" }, this.title, this.state, this.list),
      panel("Publish", h("form", { class: "stack", onsubmit: send }, field("Topic", topic), field("Payload", payload), h("label", { class: "check" }, retain, " retain"), h("button", { class: "primary" }, "Publish"), this.said)),
      h("details", { class: "panel" }, h("summary", {}, "As which MQTT user"), h("form", { class: "stack", onsubmit: (event) => (event.preventDefault(), this.enter()) }, field("User", this.user), field("Password", this.password), h("button", {}, "Use"))),
    );
  }

  enter() {
    account.user = this.user.value;
    account.password = this.password.value;
    this.close();
    if (this.topic) this.watch(this.topic);
  }

  async connected() {
    if (this.client?.isUp) return this.client;
    this.client?.close();
    const client = new MqttClient({
      onmessage: (message) => this.take(message),
      onend: (reason) => client === this.client && this.ended(client, reason),
    });
    this.client = client;
    const id = `vmq-page-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    await client.connect(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/mqtt`, { clientId: id, ...account });
    return client;
  }

  /** A connection is over. One that was lost is made again, as after a restart of the broker; not one that it refuses. */
  ended(client, reason) {
    const goesOn = client.isLost && this.topic;
    say(this.state, `Not connected: ${reason}${goesOn ? "; trying again …" : ""}`);
    if (!goesOn) return;
    clearTimeout(this.again);
    this.again = setTimeout(() => this.listen(), this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST);
  }

  async watch(topic) {
    const before = this.topic;
    this.topic = topic;
    say(this.title, topic);
    fill(this.list);
    say(this.state, "Subscribing …");
    await this.listen(before);
  }

  /** Subscribes to the chosen topic, instead of the one before. */
  async listen(before = "") {
    const { topic } = this;
    clearTimeout(this.again);
    try {
      const client = await this.connected();
      if (before && before !== topic) await client.unsubscribe(before);
      await client.subscribe(topic, 1);
      this.pause = AGAIN;
      if (this.topic === topic) say(this.state, "Subscribed. What is published from now on stands here, and what is retained.");
    } catch (error) {
      if (!this.client?.isLost) say(this.state, `No messages can be shown: ${error.message}`); // else `ended` has said so
    }
  }

  take({ topic, payload, qos, retain }) {
    if (topic !== this.topic) return;
    const line = h("li", {}, h("time", {}, clock(Date.now() / 1000)), h("span", { class: "hint" }, `QoS ${qos}${retain ? ", retained" : ""}`), h("pre", {}, shown(payload)));
    this.list.prepend(line);
    while (this.list.children.length > KEPT) this.list.lastChild.remove();
  }

  close() {
    clearTimeout(this.again);
    const client = this.client;
    this.client = null;
    client?.close();
  }
}
