// The broker's HTTP API, as everybody uses it; and its figures as server-sent events.

const KEPT = "vmq.key";
const PREFIX = "/api/v1";

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEPT) || "",
  set: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

function headers(more = {}) {
  return key.get() ? { "x-api-key": key.get(), ...more } : more;
}

async function failure(response) {
  let text = `${response.status} ${response.statusText}`;
  try {
    text = (await response.json()).error || text;
  } catch {
    // no JSON: the status says it
  }
  return new ApiError(response.status, text);
}

async function asked(method, path, parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  let url = PREFIX + path;
  const request = { method, headers: headers(), signal, cache: "no-store", credentials: "omit" };
  if (method === "POST") {
    request.headers = headers({ "Content-Type": "application/json" });
    request.body = JSON.stringify(Object.fromEntries(given));
  } else if (given.length) url += `?${new URLSearchParams(given)}`;
  let response;
  try {
    response = await fetch(url, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the broker does not answer");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export const get = async (path, parameters = {}, signal) => (await asked("GET", path, parameters, signal)).json();
export const post = async (path, parameters = {}) => (await asked("POST", path, parameters)).json();
export const remove = async (path, parameters = {}) => (await asked("DELETE", path, parameters)).json();
export const binary = async (path) => (await asked("GET", path, {})).arrayBuffer();

/** The lines of an answer that does not end, one after the other. */
export async function* lines(path, parameters, signal) {
  const response = await asked("GET", path, parameters, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const found = (rest + value).split("\n");
    rest = found.pop();
    yield* found;
  }
}

/** Server-sent events: [kind, data] of each. */
export async function* events(path, signal) {
  let kind = "";
  for await (const line of lines(path, {}, signal)) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) yield [kind, JSON.parse(line.slice(6))];
  }
}
