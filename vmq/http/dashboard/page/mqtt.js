// An MQTT 3.1.1 client over WebSocket: to publish, and to receive what is subscribed to, at QoS 0 and 1.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const KEEP_ALIVE = 30;
/** Bytes that a packet may have; a broker that sends more is not listened to any longer. */
const LARGEST = 4 * 1024 * 1024;
const CANNOT_NOW = 3;
const REASONS = ["", "the protocol version", "the client id", "the broker cannot now", "user name or password", "not authorised"];

function text(value) {
  const data = encoder.encode(value);
  return [data.length >> 8, data.length & 255, ...data];
}

function packet(head, ...parts) {
  const body = parts.flat();
  const length = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest);
  return new Uint8Array([head, ...length, ...body]);
}

export class MqttClient {
  /** `onmessage({topic, payload, qos, retain})`, `onend(reason)`: once, when the connection is over. */
  constructor({ onmessage = () => {}, onend = () => {} } = {}) {
    this.onmessage = onmessage;
    this.onend = onend;
    this.received = new Uint8Array(0);
    this.waiting = new Map();
    this.lastId = 0;
    this.isUp = false;
    /** It is over, and by nobody's decision: another one may be had. */
    this.isLost = false;
  }

  /** Resolves when the broker has let us in. */
  connect(url, { clientId, user = "", password = "" }) {
    return new Promise((done, fail) => {
      this.entered = { done, fail };
      this.socket = new WebSocket(url, "mqtt");
      this.socket.binaryType = "arraybuffer";
      this.socket.onopen = () => {
        const flags = 2 | (user ? 128 : 0) | (password ? 64 : 0);
        const credentials = [...(user ? text(user) : []), ...(password ? text(password) : [])];
        this.send(packet(0x10, text("MQTT"), 4, flags, 0, KEEP_ALIVE, text(clientId), credentials));
      };
      this.socket.onmessage = (event) => this.take(new Uint8Array(event.data));
      this.socket.onclose = () => {
        this.isLost = !this.isOver;
        this.end("the connection ended");
      };
    });
  }

  send(data) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  subscribe(filter, qos = 1) {
    return this.ask((id) => packet(0x82, id >> 8, id & 255, text(filter), qos));
  }

  unsubscribe(filter) {
    return this.ask((id) => packet(0xa2, id >> 8, id & 255, text(filter)));
  }

  /** Resolves when the broker has it, at QoS 1; at once at QoS 0. */
  publish(topic, payload, { qos = 0, retain = false } = {}) {
    const data = [...encoder.encode(payload)];
    const head = 0x30 | (qos << 1) | (retain ? 1 : 0);
    if (qos) return this.ask((id) => packet(head, text(topic), id >> 8, id & 255, data));
    this.send(packet(head, text(topic), data));
    return Promise.resolve();
  }

  ask(make) {
    if (!this.isUp) return Promise.reject(new Error("not connected"));
    do this.lastId = (this.lastId % 65535) + 1;
    while (this.waiting.has(this.lastId));
    const id = this.lastId;
    return new Promise((done, fail) => {
      this.waiting.set(id, { done, fail });
      this.send(make(id));
    });
  }

  take(data) {
    const all = new Uint8Array(this.received.length + data.length);
    all.set(this.received);
    all.set(data, this.received.length);
    let place = 0;
    while (true) {
      const found = this.next(all, place);
      if (found === null) break;
      this.handle(all[place], all.subarray(found.body, found.end));
      place = found.end;
    }
    this.received = all.slice(place);
  }

  next(all, place) {
    let length = 0;
    for (let i = 1; i <= 4; i += 1) {
      if (place + i >= all.length) return null;
      const byte = all[place + i];
      length += (byte & 127) * 128 ** (i - 1);
      if (byte < 128) {
        if (length > LARGEST) {
          this.close("the broker sent a packet that is too large");
          return null;
        }
        const body = place + i + 1;
        return body + length <= all.length ? { body, end: body + length } : null;
      }
    }
    this.close("the broker sent what is no MQTT");
    return null;
  }

  handle(head, body) {
    const kind = head >> 4;
    if (kind === 2) this.connack(body);
    else if (kind === 3) this.message(head, body);
    else if (kind === 4 || kind === 9 || kind === 11) this.answered(kind, body);
  }

  connack(body) {
    if (body[1] !== 0) {
      this.isLost = body[1] === CANNOT_NOW;
      this.close(`refused: ${REASONS[body[1]] || `code ${body[1]}`}`);
      return;
    }
    this.isUp = true;
    this.beat = setInterval(() => this.send(packet(0xc0)), (KEEP_ALIVE * 1000) / 2);
    this.entered.done();
  }

  message(head, body) {
    const qos = (head >> 1) & 3;
    const size = (body[0] << 8) | body[1];
    const topic = decoder.decode(body.subarray(2, 2 + size));
    let place = 2 + size;
    if (qos) {
      this.send(new Uint8Array([0x40, 2, body[place], body[place + 1]]));
      place += 2;
    }
    this.onmessage({ topic, payload: body.slice(place), qos, retain: (head & 1) !== 0 });
  }

  answered(kind, body) {
    const id = (body[0] << 8) | body[1];
    const asker = this.waiting.get(id);
    this.waiting.delete(id);
    if (kind === 9 && body[2] === 128) asker?.fail(new Error("the broker refuses this subscription"));
    else asker?.done();
  }

  close(reason = "closed") {
    if (this.isUp) this.send(packet(0xe0));
    this.end(reason);
  }

  end(reason) {
    if (this.isOver) return;
    this.isOver = true;
    this.isUp = false;
    clearInterval(this.beat);
    this.socket?.close();
    this.entered?.fail(new Error(reason));
    for (const { fail } of this.waiting.values()) fail(new Error(reason));
    this.waiting.clear();
    this.onend(reason);
  }
}

/** Bytes as text; of what is no UTF-8 text its bytes in hexadecimal. */
export function shown(payload, most = 2000) {
  const part = payload.subarray(0, most);
  const more = payload.length > most ? ` … (${payload.length} bytes)` : "";
  try {
    return new TextDecoder("utf-8", { fatal: payload.length <= most }).decode(part) + more;
  } catch {
    return Array.from(part.subarray(0, 200), (byte) => byte.toString(16).padStart(2, "0")).join(" ") + more;
  }
}
