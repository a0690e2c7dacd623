// Drives MQTT.js on orders from standard input; the lines are explained in ../programs/__init__.py.

import { createInterface } from "node:readline";
import mqtt from "mqtt";

const clients = new Map();

function emit(record) {
  process.stdout.write(JSON.stringify(record) + "\n");
}

function optionsOf(call) {
  const options = {
    clientId: call.id,
    clean: call.clean,
    protocolVersion: call.version,
    protocolId: call.version === 3 ? "MQIsdp" : "MQTT",
    keepalive: call.keepalive,
    reconnectPeriod: 0,
    resubscribe: false,
  };
  if (call.will !== null) {
    options.will = { ...call.will, payload: Buffer.from(call.will.payload) };
  }
  return options;
}

function report(name, client) {
  client.on("message", (topic, payload, packet) => {
    emit({
      client: name,
      event: "message",
      topic,
      payload: payload.toString("base64"),
      qos: packet.qos,
      retain: packet.retain,
      dup: packet.dup,
    });
  });
  client.on("close", () => emit({ client: name, event: "closed" }));
}

const operations = {
  open(call) {
    return new Promise((resolve, reject) => {
      const client = mqtt.connect(call.url.replace(/^tcp:/, "mqtt:"), optionsOf(call));
      clients.set(call.client, client);
      report(call.client, client);
      client.once("connect", (packet) => resolve({ session_present: packet.sessionPresent }));
      client.once("close", () => reject(new Error("connection closed")));
      // Without a listener an error would end the program and all its clients.
      client.on("error", reject);
    });
  },

  async subscribe(call) {
    const granted = [];
    const wanted = Object.fromEntries(call.filters.map(([filter, qos]) => [filter, { qos }]));
    const answers = await clients.get(call.client).subscribeAsync(wanted);
    for (const [filter] of call.filters) {
      granted.push(answers.find((answer) => answer.topic === filter).qos);
    }
    return { granted };
  },

  async unsubscribe(call) {
    await clients.get(call.client).unsubscribeAsync(call.filters);
    return {};
  },

  async publish(call) {
    const client = clients.get(call.client);
    const options = { qos: call.qos, retain: call.retain };
    await Promise.all(
      call.payloads.map((text) =>
        client.publishAsync(call.topic, Buffer.from(text, "base64"), options),
      ),
    );
    return {};
  },

  async close(call) {
    const client = clients.get(call.client);
    clients.delete(call.client);
    // Ending a client whose connection is already gone would never call back.
    if (client.connected) await client.endAsync();
    return {};
  },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const call = JSON.parse(line);
  operations[call.op](call).then(
    (result) => emit({ call: call.call, result }),
    (error) => emit({ call: call.call, error: String(error) }),
  );
}).on("close", () => process.exit(0));
