// The chat beside the demo: pages that are open talk through the broker. What is written while it is dead is sent when it is back.

import { h, say } from "/page/dom.js";
import { MqttClient } from "/page/mqtt.js";

const ROOM = "chat/lobby/say";
const KEPT = 50;
const AGAIN = 1000;
const decoder = new TextDecoder();

const some = () => [...crypto.getRandomValues(new Uint32Array(2))].join("-");
const me = `guest ${100 + (crypto.getRandomValues(new Uint16Array(1))[0] % 900)}`;

/** What somebody said; null if it is none of this chat's. */
function read(payload) {
  try {
    const { id, from, text } = JSON.parse(decoder.decode(payload));
    return [id, from, text].every((each) => typeof each === "string") ? { id, from, text } : null;
  } catch {
    return null;
  }
}

export class Chat {
  /** `address()` gives the URL of a broker that is up. */
  constructor({ list, form, state, address }) {
    Object.assign(this, { list, state, address, client: null, seen: new Set(), unsent: [] });
    const input = form.querySelector("input");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.unsent.push({ id: some(), from: me, text: input.value });
      input.value = "";
      if (!this.client) this.isAway();
      this.flush();
    });
    this.connect();
  }

  async connect() {
    const again = () => {
      this.client = null;
      this.isAway();
      setTimeout(() => this.connect(), AGAIN);
    };
    const client = new MqttClient({ onmessage: (message) => this.take(message), onend: again });
    try {
      await client.connect(this.address(), { clientId: `chat-${some()}` });
      await client.subscribe(ROOM);
      await client.subscribe(`$replay/-1h/${ROOM}`).catch(() => {}); // several nodes keep no history
      this.client = client;
      say(this.state, `you are ${me}; open this page twice`);
      await this.flush();
    } catch {
      // the connection ended: `again` has been called
    }
  }

  isAway() {
    say(this.state, this.unsent.length ? "what you write is sent when the broker is back" : "not connected");
  }

  /** Sends what waits, in order; what was not acknowledged stays. */
  async flush() {
    while (this.client && this.unsent.length) {
      const message = this.unsent[0];
      try {
        await this.client.publish(ROOM, JSON.stringify(message), { qos: 1 });
      } catch {
        return;
      }
      if (this.unsent[0] === message) this.unsent.shift();
    }
  }

  /** What came twice, by history and of now or sent again, is shown once. */
  take({ payload }) {
    const message = read(payload);
    if (!message || this.seen.has(message.id)) return;
    this.seen.add(message.id);
    this.list.append(h("li", {}, h("b", {}, message.from), " ", message.text.slice(0, 500)));
    while (this.list.children.length > KEPT) this.list.firstChild.remove();
    this.list.scrollTop = this.list.scrollHeight;
  }
}
