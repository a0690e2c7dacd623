// The demo: what arrives on a map, a count of what is lost, and buttons that kill.

import { fill, h, say } from "/page/dom.js";
import { count, duration } from "/page/format.js";
import { Chat } from "/demo/chat.js";

const SITES = [
  ["Harbour", 0.17, 0.72], ["Old Mill", 0.36, 0.31], ["North Gate", 0.6, 0.14], ["Airport", 0.86, 0.24], ["Brewery", 0.47, 0.52],
  ["Greenhouse", 0.15, 0.35], ["Stadium", 0.72, 0.47], ["Power Plant", 0.86, 0.72], ["University", 0.63, 0.75], ["Lighthouse", 0.38, 0.83],
];
const SPAN = 60;
const PULSE_AFTER = 6;

const at = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const word = document.querySelector("meta[name=word]").content;
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";

let state = null;
let before = null;
let pressed = false;
let alerts = 0;
let chat = null;
const rows = { time: [], sent: [], received: [] };
const devices = [];

// The map

/** A device: it walks about its site, and flashes when it was heard. */
class Device {
  constructor(index) {
    this.site = index % SITES.length;
    this.turn = index * 2.399;
    this.radius = 0.022 + 0.05 * Math.sqrt(((index * 7919) % 97) / 97);
    this.speed = 0.05 + ((index * 31) % 17) / 120;
    this.value = 21;
    this.heard = -1e9;
  }

  place(seconds) {
    const [, x, y] = SITES[this.site];
    const turn = this.turn + this.speed * seconds;
    return [x + this.radius * Math.cos(turn) * (0.8 + 0.2 * Math.sin(turn * 2.3)), y + 1.2 * this.radius * Math.sin(turn)];
  }
}

const canvas = at("map");
const paper = canvas.getContext("2d");

/** Land and water, the same each time: a coast with a bay. */
function ground(width, height) {
  paper.fillStyle = colour("raised");
  paper.fillRect(0, 0, width, height);
  paper.beginPath();
  paper.moveTo(0, height * 0.82);
  paper.bezierCurveTo(width * 0.1, height * 0.76, width * 0.06, height * 0.62, width * 0.2, height * 0.6);
  paper.bezierCurveTo(width * 0.33, height * 0.58, width * 0.25, height * 0.75, width * 0.36, height * 0.78);
  paper.bezierCurveTo(width * 0.5, height * 0.84, width * 0.55, height * 0.9, width * 0.72, height * 0.88);
  paper.bezierCurveTo(width * 0.86, height * 0.86, width * 0.9, height * 0.92, width, height * 0.88);
  paper.lineTo(width, 0);
  paper.lineTo(0, 0);
  paper.closePath();
  paper.fillStyle = colour("surface");
  paper.fill();
  paper.strokeStyle = colour("line");
  paper.lineWidth = 1.5;
  paper.stroke();
  paper.setLineDash([4, 6]);
  for (const [from, to] of [[0, 4], [4, 1], [1, 5], [4, 6], [6, 3], [1, 2], [6, 7], [6, 8], [8, 9], [0, 9]]) {
    paper.beginPath();
    paper.moveTo(SITES[from][1] * width, SITES[from][2] * height);
    paper.lineTo(SITES[to][1] * width, SITES[to][2] * height);
    paper.stroke();
  }
  paper.setLineDash([]);
}

function draw(now) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  ground(width, height);
  const [cool, hot, rest] = [colour("accent"), colour("bad"), colour("muted")];
  for (const device of devices) {
    const [x, y] = device.place(now / 1000);
    const age = (now - device.heard) / 1000;
    const isHot = device.value > 30;
    if (age >= 0 && age < 0.7) {
      paper.beginPath();
      paper.arc(x * width, y * height, 3 + 14 * age, 0, 7);
      paper.strokeStyle = isHot ? hot : cool;
      paper.globalAlpha = 0.7 - age;
      paper.stroke();
    }
    paper.globalAlpha = age < 2 ? 1 : 0.35;
    paper.beginPath();
    paper.arc(x * width, y * height, isHot ? 4.2 : 2.8, 0, 7);
    paper.fillStyle = isHot ? hot : age < 2 ? cool : rest;
    paper.fill();
  }
  paper.globalAlpha = 1;
  paper.font = "600 12.5px system-ui, sans-serif";
  paper.textAlign = "center";
  paper.fillStyle = colour("text");
  for (const [name, x, y] of SITES) paper.fillText(name, x * width, y * height - 0.1 * height - 4);
  if (state?.nodes.every((node) => !node.up)) {
    paper.fillStyle = colour("bad");
    paper.font = "700 22px system-ui, sans-serif";
    paper.fillText("the broker is dead: devices keep what they read", width / 2, height - 22);
  }
  requestAnimationFrame(draw);
}

// The chart

let plot = null;

function chart() {
  const place = at("plot");
  const axis = { stroke: colour("muted"), ticks: { show: false }, grid: { stroke: colour("line"), width: 1 }, font: "11px system-ui" };
  plot?.destroy();
  plot = new uPlot(
    {
      width: place.clientWidth,
      height: Math.max(90, place.clientHeight),
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: () => [(rows.time.at(-1) || SPAN) - SPAN, rows.time.at(-1) || SPAN] }, y: { range: (_plot, _low, high) => [0, Math.max(10, high * 1.1)] } },
      axes: [{ ...axis, grid: { show: false }, values: (_plot, values) => values.map((each) => (each < 0 ? "" : `${Math.round(each)} s`)) }, { ...axis, size: 48, space: 28 }],
      series: [{}, { stroke: colour("second"), width: 2 }, { stroke: colour("accent"), width: 2, fill: `${colour("accent")}2a` }],
    },
    [rows.time, rows.sent, rows.received],
    place,
  );
}

function add(now, then) {
  const span = now.seconds - then.seconds;
  if (span <= 0) return;
  rows.time.push(now.seconds);
  rows.sent.push((now.sent - then.sent) / span);
  rows.received.push((now.received - then.received) / span);
  while (rows.time.length > 2 && rows.time[0] < now.seconds - SPAN - 2) Object.values(rows).forEach((each) => each.shift());
  plot?.setData([rows.time, rows.sent, rows.received]);
}

// Buttons

async function press(what) {
  pressed = true;
  const answer = await fetch(`/do/${what}`, { method: "POST", headers: { "X-Vmq-Demo": word } });
  const { said } = await answer.json();
  if (what.startsWith("open-")) {
    if (said) window.open(said, "_blank", "noopener");
    return;
  }
  say(at("said"), said);
}

function buttons() {
  const box = at("buttons");
  const isOne = state.nodes.length === 1;
  if (box.children.length !== state.nodes.length + (state.spark.missing ? 0 : 1)) {
    const kill = (what, label) => h("button", { type: "button", class: "kill", "data-what": what, onclick: () => press(what) }, label);
    fill(
      box,
      state.nodes.map((node) => h("div", { class: "line" }, kill(`kill-${node.name}`, isOne ? "Kill the broker" : `Kill node ${node.name}`), h("button", { type: "button", class: "more", onclick: () => press(`open-${node.name}`) }, "Look inside"))),
      state.spark.missing ? null : h("div", { class: "line" }, kill("kill-spark", "Kill Spark")),
    );
  }
  for (const node of state.nodes) {
    const button = box.querySelector(`[data-what="kill-${node.name}"]`);
    button.disabled = !node.up;
    const name = isOne ? "the broker" : `node ${node.name}`;
    say(button, node.up ? `Kill ${name}` : `${isOne ? "The broker" : `Node ${node.name}`} is dead (${node.for.toFixed(0)} s)`);
    button.classList.toggle("beckon", node.up && !pressed && state.seconds > PULSE_AFTER && node === state.nodes[0]);
  }
  const spark = box.querySelector("[data-what=kill-spark]");
  if (spark) spark.disabled = state.spark.state !== "running";
}

// What is told

function show() {
  say(at("about"), `${count(state.up)} of ${count(state.devices)} devices connected · ${duration(state.seconds)}`);
  say(at("received"), state.received.toLocaleString("en"));
  say(at("sent"), state.sent.toLocaleString("en"));
  for (const name of ["lost", "repeated"]) {
    say(at(name), count(state[name]));
    at(name).className = state[name] ? "poor" : "good";
  }
  say(at("way"), count(Math.max(0, state.sent - state.received - state.lost)));
  const { spark } = state;
  const lag = spark.lag === null ? "" : `, ${count(spark.lag)} readings behind`;
  const again = spark.restarts ? `, started ${spark.restarts + 1} times` : "";
  say(at("spark"), spark.missing ? `There is no Spark: ${spark.state}` : spark.state === "running" ? `Spark runs${lag}${again}; it reads the same messages and publishes back` : `Spark: ${spark.state}${again}`);
  if (state.alert_count !== alerts) {
    alerts = state.alert_count;
    const list = [...state.alerts].reverse();
    fill(at("alerts"), list.map(([topic, average], i) => h("li", { class: i === 0 ? "fresh" : null }, h("span", {}, named(topic)), h("b", {}, `${average.toFixed(1)} °C`))));
  }
  buttons();
}

function named(topic) {
  const [, site, device] = topic.split("/");
  const place = SITES[Number(site.replace("site-", ""))];
  return `${place ? place[0] : site}, ${device}`;
}

const feed = new EventSource("/feed");
feed.onmessage = (event) => {
  before = state;
  state = JSON.parse(event.data);
  while (devices.length < state.devices) devices.push(new Device(devices.length));
  const now = performance.now();
  for (const [index, value] of Object.entries(state.heard)) {
    devices[index].heard = now + Math.random() * 220; // those of a quarter of a second do not flash as one
    devices[index].value = value;
  }
  if (before) add(state, before);
  show();
  chat ??= new Chat({ list: at("chat"), form: at("chat-form"), state: at("chat-state"), address: () => (state.nodes.find((node) => node.up) || state.nodes[0]).chat });
  say(at("pulse"), "live");
  at("pulse").classList.add("is-live");
};
feed.onerror = () => {
  say(at("pulse"), "the demo has ended");
  at("pulse").classList.remove("is-live");
};

chart();
addEventListener("resize", chart);
requestAnimationFrame(draw);
