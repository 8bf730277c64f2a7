// What the widgets with translators share: elements, files that the browser keeps, and
// addresses that carry a sentence.

import { knowsAll, readKnown } from "./known.js";

const LONGEST = 500; // characters; a longer text is refused
const SHELF = "attention-step-by-step"; // the name of what the browser keeps

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
export const percent = (weight) => `${Math.round(100 * weight)}\u00a0%`;
export const bare = (word) => word.replace(/[.,]$/, "");
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const SECOND = 1000; // milliseconds; work that takes longer says so

// What to say of a translation that began at a time, by how long it has taken.
export const soFar = (begun) => {
  const seconds = (performance.now() - begun) / SECOND;
  if (seconds < 1) return "";
  return seconds < 3 ? "Translating …" : "Still translating, a word at a time.";
};

export function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// The return key sends what stands in a field, though it may fill several lines.
export const sends = (field, button) =>
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    button.click();
  });

// ---- files that the browser keeps ----

// Where the files are kept; nowhere if the browser does not allow it.
async function shelf() {
  try {
    return await caches.open(SHELF);
  } catch {
    return null;
  }
}

// A file, from the shelf or from the site; `arrived` is told how many bytes came.
export async function fetchFile(url, arrived) {
  const kept = await shelf();
  let response = await kept?.match(url);
  let stored;
  if (!response) {
    response = await fetch(url);
    if (!response.ok) throw new Error(`${response.status} for ${url}`);
    if (/html/.test(response.headers.get("Content-Type")))
      throw new Error(`a web page instead of ${url}`); // a hotel that wants a login
    const older = (await kept?.keys()) ?? [];
    const path = (address) => new URL(address).pathname;
    for (const one of older)
      if (path(one.url) === path(response.url)) await kept.delete(one);
    stored = kept?.put(url, response.clone()).catch(() => {}); // as the bytes come
  }
  const chunks = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) {
      await stored;
      return new Blob(chunks).arrayBuffer();
    }
    chunks.push(value);
    arrived(value.length);
  }
}

// Where a file of a model is.
export const address = (files, { name, version }, file) =>
  new URL(`${files}${name}/${file}?v=${version}`, document.baseURI).href;

// ---- what a model knows ----

const lists = new Map();

// What a model has read, by which one of its translations is doubted.
export async function knownBy(files, model) {
  if (model.read) return model.known ?? knowsAll; // the reader's own
  if (!model.known) return knowsAll;
  const url = address(files, model, "known.json");
  const load = async () =>
    readKnown(JSON.parse(new TextDecoder().decode(await fetchFile(url, () => {}))));
  if (!lists.has(url)) lists.set(url, load());
  return lists.get(url).catch(async () => {
    lists.delete(url);
    await (await shelf())?.delete(url); // it may be no list
    return knowsAll;
  });
}

// ---- what a word attended to ----

const LEAST = 0.05; // smaller weights are neither drawn nor told

// The places of the source that got weight, most first; the last place is the end.
export const attended = (weights) =>
  [...weights.keys()]
    .filter((place) => weights[place] >= LEAST)
    .sort((a, b) => weights[b] - weights[a]);

// The most attended words, in words.
export function explain({ source, target, weights }, chosen) {
  const row = weights[chosen] ?? [];
  const most = attended(row).slice(0, 3);
  if (!most.length) return "";
  const listed = most.map(
    (place) => `${bare(source[place] ?? "the end")} ${percent(row[place])}`,
  );
  return `${bare(target[chosen])} ← ${listed.join(", ")}`;
}

// Which of `count` buttons, in rows of `width`, the arrow keys lead to; undefined for other
// keys.
export function neighbour({ key }, chosen, count, width = count) {
  const [left, right] = [Math.max(chosen - 1, 0), Math.min(chosen + 1, count - 1)];
  const rows = { ArrowUp: chosen - width, ArrowDown: chosen + width };
  if (key in rows) return rows[key] in Array(count).fill(0) ? rows[key] : undefined;
  return { ArrowLeft: left, ArrowRight: right, Home: 0, End: count - 1 }[key];
}

// The weights of a record: for each target word, pairs of a place and thousandths.
export const unpack = (rows, length) =>
  rows.map((row) => {
    const full = new Array(length + 1).fill(0);
    for (const [place, thousandths] of row) full[place] = thousandths / 1000;
    return full;
  });

// ---- addresses that carry a sentence: #model/sentence ----

export function carried() {
  const [, name, text] = location.hash.match(/^#([\w-]+)\/(.+)$/) ?? [];
  try {
    return { name, text: text && decodeURIComponent(text) };
  } catch {
    return {}; // not an address that we made
  }
}

export function carry(name, text) {
  const sentence = encodeURIComponent(text.replace(/\p{Cs}/gu, "\ufffd")); // half a pair
  history.replaceState(history.state, "", `#${name}/${sentence}`);
}

// An address that carried a sentence of one of these carries none.
export function forget(names) {
  const { pathname, search } = location;
  if (names.includes(carried().name))
    history.replaceState(history.state, "", pathname + search);
}

// A button that copies the address, which carries the sentence.
export function copies(button, name, sentence) {
  const { textContent: label } = button;
  button.addEventListener("click", async () => {
    carry(name(), sentence());
    const copied = navigator.clipboard?.writeText(location.href);
    await Promise.resolve(copied ?? Promise.reject()).then(
      () => (button.textContent = "Copied"),
      () => (button.textContent = "The address bar has it"),
    );
    setTimeout(() => (button.textContent = label), 2000);
  });
}

// ---- what every widget with translators does ----

export class Widget {
  constructor(root, names) {
    const find = (selector) => root.querySelector(selector);
    const data = JSON.parse(find("script[type='application/json']").textContent);
    Object.assign(this, { root, ...data, run: 0 });
    for (const name of ["state", "notice", "tries", "form", ...names])
      this[name] = find(`.tl-${name}`);
    [this.input, this.button] = [find("textarea"), find("form button")];
    this.hint = this.state.textContent;
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    for (const field of this.form.querySelectorAll("textarea")) sends(field, this.button);
  }

  // What can only be used with a script appears.
  ready() {
    this.root.classList.add("tl-ready");
  }

  // Loads models, one after the other; nothing if one of them cannot be had.
  async fetch(models) {
    if (this.button.disabled) return null; // they are on their way
    const total = models.reduce((sum, { bytes }) => sum + bytes, 0);
    const whole = megabytes(total);
    const label = this.button.textContent;
    let [sum, idle] = [0, 0];
    const arrived = (count) => {
      [sum, idle] = [sum + count, 0];
      this.button.textContent = `${megabytes(sum)} of ${whole}`;
      this.report(sum < total ? `Loading ${whole}.` : "Unpacking the weights.");
    };
    const watch = setInterval(() => {
      if (sum < total && ++idle > 1)
        this.report(`Waiting for the network: ${megabytes(sum)} of ${whole} are here.`);
    }, SECOND);
    const focused = document.activeElement === this.button;
    this.button.disabled = true;
    this.say("");
    this.report(`Loading ${whole}.`);
    try {
      const { Translator } = await import("./translator.js");
      const translators = [];
      for (const model of models)
        translators.push(
          await Translator.load(
            model.read ??
              ((file) => fetchFile(address(this.files, model, file), arrived)),
          ),
        );
      return translators;
    } catch (error) {
      this.failed(models, error);
      return null;
    } finally {
      clearInterval(watch);
      this.button.textContent = label;
      this.button.disabled = false;
      if (focused && document.activeElement === document.body)
        this.button.focus({ preventScroll: true });
      this.state.textContent = this.hint;
    }
  }

  // The words that a model knows. They are loaded with the first sentence; if that takes
  // longer than a second, what stands there goes, and the widget says what it waits for.
  async knownOf(model, clear) {
    const { run } = this;
    const waits = "Loading the list of words that it knows.";
    const timer = setTimeout(() => {
      if (run !== this.run) return; // something else stands there
      clear();
      this.report(waits);
    }, SECOND);
    try {
      return await knownBy(this.files, model);
    } finally {
      clearTimeout(timer);
      if (run === this.run && this.state.textContent === waits) this.report(this.hint);
    }
  }

  // What it is doing.
  report(text) {
    if (this.state.textContent !== text) this.state.textContent = text;
  }

  failed(models, error) {
    const what = models.length > 1 ? "The models" : models[0].name;
    this.say(`${what} could not be loaded (${error.message}). Try again?`);
  }

  // Whether a text is longer than what a translator takes; says so.
  tooLong(text) {
    if (text.length <= LONGEST) return false;
    this.say(
      `${text.length} characters: a translator takes ${LONGEST}, a sentence at a time.`,
    );
    return true;
  }

  // The words of a source, and its end.
  list(words, unknown) {
    this.source.replaceChildren(
      ...words.flatMap((word, i) => [
        element("span", unknown[i] ? { class: "tl-unknown" } : {}, word),
        " ",
      ]),
      element("span", { class: "tl-end", title: "the end of the sentence" }, "end"),
    );
  }

  // Words of a translation as buttons; `chosen` is told which one is pointed at.
  buttons(words, chosen) {
    return words.map((word, place) => {
      const button = element("button", { type: "button" }, word);
      for (const kind of ["mouseenter", "focus", "click"])
        button.addEventListener(kind, () => chosen(place));
      return button;
    });
  }

  // The arrow keys move among buttons that stand in rows of `width`.
  follow(event, buttons, width = buttons.length) {
    const here = buttons.indexOf(event.target);
    const next = neighbour(event, here, buttons.length, width);
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the page would turn
    buttons[next].focus();
  }

  say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
  }
}
