// Elements. What strangers wrote (client ids, topics, payloads) comes in as children, which are text and never markup.

/** An element: `props` are attributes, "on..." are listeners, null leaves one out; children are elements or texts. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return put(element, ...children);
}

/** Adds children; lists are flattened, null is left out. */
export function put(element, ...children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Has an element hold exactly these children. */
export function fill(element, ...children) {
  element.replaceChildren();
  return put(element, ...children);
}

/** Sets a text only where it changes: nothing is drawn anew otherwise. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** An icon: strokes of a 24 by 24 grid. */
export function icon(path, label = "") {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  if (label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  } else svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const ICONS = {
  ok: "M5 12.5l4.5 4.5L19 7.5",
  warn: "M12 4L2.5 20h19zM12 10v4.5M12 17.2v.3",
  bad: "M6 6l12 12M18 6L6 18",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  wrong: "M3 12h4l2.5-7 5 14 2.5-7h4",
  now: "M4 19V5M4 19h16M8 16v-5M12 16V8M16 16v-3",
  clients: "M8 11a3.5 3.5 0 100-7 3.5 3.5 0 000 7zM2 20c0-3.5 2.5-6 6-6s6 2.5 6 6M16 11a3 3 0 100-6M17 14c3 .3 5 2.6 5 6",
  topics: "M5 4v14a2 2 0 002 2h4M5 10h6M13 8h7v4h-7zM13 18h7v4h-7z",
  streams: "M3 7h18M3 12h12M3 17h16",
  cluster: "M12 4a2 2 0 100 4 2 2 0 000-4zM5 16a2 2 0 100 4 2 2 0 000-4zM19 16a2 2 0 100 4 2 2 0 000-4zM11 8l-5 8M13 8l5 8M7 18h10",
  plugins: "M9 3v5M15 3v5M6 8h12v3a6 6 0 01-12 0zM12 17v4",
  pipelines: "M3 6h6v4H3zM15 14h6v4h-6zM9 8h3v8h3",
  why: "M9 9a3 3 0 116 0c0 2-3 2.3-3 5M12 17.5v.3",
  trace: "M4 6h10M4 10h16M4 14h7M4 18h13",
};

/** Asks before something is done that cannot be taken back. Resolves to whether it is to be done. */
export function confirmed(question, action) {
  return new Promise((done) => {
    const dialog = h("dialog", { "aria-label": question });
    const close = (verdict) => () => {
      dialog.close();
      dialog.remove();
      done(verdict);
    };
    const no = h("button", { type: "button", onclick: close(false) }, "Cancel");
    put(
      dialog,
      h("p", {}, question),
      h("div", { class: "buttons" }, no, h("button", { type: "button", class: "danger", onclick: close(true) }, action)),
    );
    dialog.addEventListener("cancel", close(false));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
