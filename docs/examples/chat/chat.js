// A chat: a room is a topic, presence is a retained message with a will, history is a replay of the stream "chat".

const at = (id) => document.getElementById(id);
const KEPT = 200;
/** Return codes of a CONNACK after which it is no use to try again: 3 says that the broker cannot now. */
const REFUSED = [1, 2, 4, 5];
let client = null;
let me = "";
let room = "";

/** One page is one client: two tabs of a browser do not take each other's connection. */
const clientId = `chat-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
/** Ids of the messages that this page shows: other tabs have read theirs. */
const shown = new Set();

const topic = (...levels) => ["chat", room, ...levels].join("/");
const stored = () => JSON.parse(localStorage.getItem(`chat.${room}`) || "[]");

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text; // what others wrote is text
  if (className) made.className = className;
  return made;
}

function show({ id, from, text, at: when }) {
  shown.add(id);
  const line = element("li", "", from === me ? "mine" : "");
  line.append(element("b", from), text, element("time", new Date(when).toLocaleTimeString([], { timeStyle: "short" })));
  const list = at("said");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  list.append(line);
  while (list.children.length > KEPT) list.firstChild.remove();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

/** A message that came, be it from history or of now; null if it is none of this chat's. */
function read(payload) {
  try {
    const { id, from, text, at: when } = JSON.parse(payload);
    return [id, from, text].every((each) => typeof each === "string") && Number.isFinite(when) ? { id, from, text, at: when } : null;
  } catch {
    return null;
  }
}

function take(name, payload) {
  const [, , kind, who] = name.split("/");
  if (kind === "here") {
    const known = [...at("people").children].find((each) => each.textContent === who);
    if (payload.length && !known) at("people").append(element("li", who));
    if (!payload.length) known?.remove();
    if (!payload.length && who === me) sayHere(); // it was of another tab, or of a connection that was cut
    return;
  }
  const message = read(payload.toString());
  if (!message || shown.has(message.id)) return;
  const others = stored().filter((each) => each.id !== message.id);
  localStorage.setItem(`chat.${room}`, JSON.stringify([...others, message].slice(-KEPT)));
  show(message);
}

function sayHere() {
  client.publish(topic("here", me), "here", { qos: 1, retain: true });
}

/** What is said from now on, and what was said before where the broker keeps it; what comes both ways is shown once. */
function subscribe() {
  at("people").replaceChildren(); // who left while we were away, nobody tells us of
  client.subscribe(topic("here", "+"), { qos: 1 });
  client.subscribe(topic("say"), { qos: 1 }, (error, granted) => {
    if (error || granted?.some((each) => each.qos > 2)) at("state").textContent = "You may not read this room.";
  });
  client.subscribe(`$replay/-1d/${topic("say")}`, { qos: 1 }, () => {});
  sayHere();
}

function enter(event) {
  event.preventDefault();
  me = at("name").value.trim().replace(/[/+#]/g, "");
  room = at("room").value.trim();
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const password = at("password").value;
  client?.end(true);
  client = mqtt.connect(`${scheme}://${location.host}/mqtt`, {
    clientId,
    protocolVersion: 4,
    timerVariant: "native", // else PINGREQ goes by a timer of a worker, which a strict policy for pages does not let be
    ...(password ? { username: me, password } : {}),
    will: { topic: topic("here", me), payload: "", qos: 1, retain: true },
    reconnectOnConnackError: true,
  });
  client.on("connect", () => {
    at("enter").hidden = true;
    at("chat").hidden = false;
    at("title").textContent = room;
    at("state").textContent = "";
    subscribe();
    at("text").focus();
  });
  client.on("message", take);
  client.on("close", () => (at("state").textContent = "Not connected; trying again …"));
  client.on("error", (error) => {
    at("why").textContent = error.message;
    if (REFUSED.includes(error.code)) client.end(true);
  });
  shown.clear();
  at("said").replaceChildren();
  stored().forEach(show);
}

function say(event) {
  event.preventDefault();
  const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
  client.publish(topic("say"), JSON.stringify({ id, from: me, text: at("text").value, at: Date.now() }), { qos: 1 });
  at("text").value = "";
}

function leave() {
  client.off("message", take);
  client.publish(topic("here", me), "", { qos: 1, retain: true }, () => client.end(false, () => location.reload()));
}

at("enter").addEventListener("submit", enter);
at("say").addEventListener("submit", say);
at("leave").addEventListener("click", leave);
