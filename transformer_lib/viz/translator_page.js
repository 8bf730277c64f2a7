// The translator in a page: draws what was recorded, loads a model when asked, and
// draws what it does with the reader's own words.

const SHELF = "attention-step-by-step"; // the name of what the browser keeps
const LEAST = 0.05; // thinner lines are not drawn
const LONGEST = 500; // characters; a longer text is refused
const PRONOUNS = ["er", "sie", "es"];

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const percent = (weight) => `${Math.round(100 * weight)} %`;
const bare = (word) => word.replace(/[.,]$/, "");
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

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
async function fetchFile(url, arrived) {
  const kept = await shelf();
  let response = await kept?.match(url);
  if (!response) {
    response = await fetch(url);
    if (!response.ok) throw new Error(`${response.status} for ${url}`);
    const older = (await kept?.keys()) ?? [];
    const path = (address) => new URL(address).pathname;
    for (const one of older)
      if (path(one.url) === path(response.url)) await kept.delete(one);
    await kept?.put(url, response.clone()).catch(() => {});
  }
  const chunks = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(chunks).arrayBuffer();
    chunks.push(value);
    arrived(value.length);
  }
}

// ---- the widget ----

class TranslatorInPage {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    const data = JSON.parse(find("script[type='application/json']").textContent);
    Object.assign(this, { root, ...data, run: 0, chosen: -1 });
    for (const name of [
      "source",
      "target",
      "state",
      "says",
      "notice",
      "changes",
      "tries",
      "form",
      "settings",
      "terms",
    ]) {
      this[name] = find(`.tl-${name}`);
    }
    this.lines = find("svg");
    this.input = find("input");
    this.button = find("form button");
    [this.model, this.search, this.heads] = root.querySelectorAll("select");
    this.words = this.start.slice();
    this.listen();
    this.root.classList.add("tl-ready");
    this.offer();
    this.show(this.recorded(), { final: true });
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    let waiting;
    this.input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.write(), 400);
    });
    for (const one of this.changes.querySelectorAll("button")) {
      one.addEventListener("click", () =>
        this.change(Number(one.dataset.slot), one.textContent),
      );
    }
    this.model.addEventListener("change", () => this.pick());
    this.search.addEventListener("change", () => this.write());
    this.heads.addEventListener("change", () => this.draw());
    this.target.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.arrange()).observe(this.root);
    document.fonts?.ready.then(() => this.arrange());
  }

  // ---- the recorded example ----

  sentence() {
    const [animal, place, reason] = this.words;
    return this.pattern
      .replace("{0}", animal)
      .replace("{1}", place)
      .replace("{2}", reason);
  }

  recorded() {
    const found = this.examples[this.words.join(" ")];
    const weights = found.weights.map((row) => {
      const full = new Array(found.source.length + 1).fill(0);
      for (const [place, thousandths] of row) full[place] = thousandths / 1000;
      return full;
    });
    return { ...found, weights, unknown: [] };
  }

  async change(slot, word) {
    this.words[slot] = word;
    this.input.value = this.sentence();
    if (this.loaded === this.wanted) return this.write();
    this.press();
    const run = ++this.run;
    const picture = this.recorded();
    for (let count = 1; count < picture.target.length && !calm(); count++) {
      this.show(
        { ...picture, target: picture.target.slice(0, count) },
        { all: picture.target },
      );
      await pause(60);
      if (run !== this.run) return;
    }
    this.show(picture, { final: true });
  }

  // Which words are chosen, if the sentence is still the pattern's.
  press() {
    const ours = this.input.value === this.sentence();
    for (const one of this.changes.querySelectorAll("button")) {
      const chosen = ours && this.words[one.dataset.slot] === one.textContent;
      one.setAttribute("aria-pressed", String(chosen));
    }
  }

  // ---- the model ----

  get wanted() {
    return this.models[this.model.selectedIndex];
  }

  // Another model: its own examples, and no result of the one before.
  pick() {
    this.run++;
    this.input.value = this.wanted.captions ? this.sentence() : this.wanted.tries[0];
    this.offer();
    this.clear("");
    if (this.wanted.captions && this.loaded !== this.wanted)
      this.show(this.recorded(), { final: true });
    else this.write();
  }

  // The sentence stands there, and no translation.
  clear(why) {
    const source = this.input.value.split(/\s+/).filter(Boolean);
    const unknown = source.map(() => false);
    this.last = null;
    this.show({ source: source.slice(0, 60), target: [], weights: [], unknown }, {});
    this.says.textContent = "";
    this.say(why);
  }

  async offer() {
    const { bytes, knows, terms, name, tries } = this.wanted;
    this.terms.replaceChildren(element("strong", {}, knows), ` ${terms}`);
    this.input.lang = this.source.lang = this.wanted.source;
    this.target.lang = this.says.lang = this.wanted.target;
    this.changes.hidden = !this.wanted.captions;
    this.tries.hidden = this.wanted.captions;
    this.tries.replaceChildren(
      ...tries.map((text) => {
        const button = element("button", { type: "button", lang: this.wanted.source }, text);
        button.addEventListener("click", () => {
          this.input.value = text;
          this.submit();
        });
        return button;
      }),
    );
    this.press();
    const ready = this.loaded === this.wanted;
    this.settings.classList.toggle("tl-loaded", ready);
    this.button.textContent = ready
      ? "Translate"
      : `Load the translator (${megabytes(bytes)})`;
    const kept = await (await shelf())?.match(this.address("weights.safetensors"));
    if (kept && this.loaded !== this.wanted && this.wanted.name === name) {
      const size = megabytes(bytes);
      this.button.textContent = `Start the translator (${size}, kept here)`;
    }
  }

  address(file) {
    const { name, version } = this.wanted;
    return new URL(`${this.files}${name}/${file}?v=${version}`, document.baseURI)
      .href;
  }

  async submit() {
    if (this.loaded !== this.wanted && !(await this.load())) return;
    await this.write();
  }

  async load() {
    const { bytes, name } = this.wanted;
    this.button.disabled = this.model.disabled = true;
    this.say(`Loading ${megabytes(bytes)}.`);
    let sum = 0;
    const arrived = (count) => {
      sum += count;
      this.button.textContent = `${megabytes(sum)} of ${megabytes(bytes)}`;
    };
    try {
      const { Translator, EOS } = await import("./translator.js");
      const translator = await Translator.load((file) =>
        fetchFile(this.address(file), arrived),
      );
      Object.assign(this, { translator, end: EOS, loaded: this.wanted });
      this.listHeads();
      this.listWidths(translator.decoding.beam_size ?? 1);
      this.say("");
      return true;
    } catch (error) {
      this.clear(`${name} could not be loaded (${error.message}). Try again?`);
      return false;
    } finally {
      this.button.disabled = this.model.disabled = false;
      this.offer();
    }
  }

  // The heads to choose from; first the one that shows most.
  listHeads() {
    const { n_decoder_layers: layers, n_heads: heads } =
      this.translator.model.config;
    const mean = (step) =>
      step[0].map((_, s) => step.reduce((sum, head) => sum + head[s], 0) / heads);
    this.weighings = [["Last layer, average", (step) => mean(step.at(-1))]];
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const label = `Layer ${layer + 1}, head ${head + 1}`;
        this.weighings.push([label, (step) => step[layer][head]]);
      }
    }
    this.heads.replaceChildren(
      ...this.weighings.map(([label]) => element("option", {}, label)),
    );
    const [layer, head] = this.loaded.head ?? [];
    this.heads.selectedIndex = this.loaded.head ? 1 + layer * heads + head : 0;
  }

  // Greedy, and the width that the model ships with, which is chosen.
  listWidths(width) {
    const label = (n) => (n === 1 ? "greedy" : `beam of ${n}`);
    const options = [...new Set([width, 1])].map((n) =>
      element("option", { value: n }, label(n)),
    );
    this.search.replaceChildren(...options);
  }

  // Translates what stands in the field, word by word.
  async write() {
    const run = ++this.run;
    const text = this.input.value.trim();
    this.press();
    if (this.loaded !== this.wanted) {
      this.clear("");
      this.state.textContent = "Load the translator, and it translates what you type.";
      return;
    }
    if (!text) return this.clear("");
    if (text.length > LONGEST)
      return this.clear(
        `${text.length} characters: the translator takes ${LONGEST}, a sentence at a time.`,
      );
    const options = { beamSize: Number(this.search.value) };
    try {
      const steps = this.translator.translate(text, options);
      for (;;) {
        const { value, done } = steps.next();
        this.last = [text, value];
        if (done) return this.draw();
        this.show(this.picture(), {});
        await pause(calm() ? 0 : 30);
        if (run !== this.run) return;
      }
    } catch (error) {
      this.clear(`This sentence cannot be translated: ${error.message}.`);
    }
  }

  picture() {
    const [, weigh] = this.weighings[this.heads.selectedIndex];
    return this.translator.picture(...this.last, weigh);
  }

  draw() {
    if (!this.last) return;
    const { tokens } = this.last[1];
    const cut = tokens.length > 0 && tokens.at(-1) !== this.end;
    this.show(this.picture(), { final: true, cut });
  }

  // ---- drawing ----

  // Words and lines; `all` are the words that will stand there, to keep their room.
  show(picture, { final = false, cut = false, all = picture.target }) {
    this.shown = picture;
    this.source.replaceChildren(
      ...picture.source.flatMap((word, i) => [
        element("span", picture.unknown[i] ? { class: "tl-unknown" } : {}, word),
        " ",
      ]),
      element("span", { class: "tl-end", title: "the end of the sentence" }, "end"),
    );
    this.target.replaceChildren(
      ...all.flatMap((word, i) => {
        const button = element("button", { type: "button" }, word);
        if (i >= picture.target.length) button.style.visibility = "hidden";
        for (const kind of ["mouseenter", "focus", "click"]) {
          button.addEventListener(kind, () => this.choose(i));
        }
        return [button, " "];
      }),
    );
    const pronoun = picture.target.findLastIndex((word) => PRONOUNS.includes(word));
    this.chosen = final && pronoun >= 0 ? pronoun : picture.target.length - 1;
    this.arrange();
    this.state.textContent = final ? this.explain() : "";
    this.warn(cut);
    if (final) this.says.textContent = picture.target.join(" ");
  }

  choose(index) {
    if (this.chosen === index) return;
    this.chosen = index;
    this.connect();
    this.state.textContent = this.explain();
  }

  move(event) {
    const last = this.shown.target.length - 1;
    const [left, right] = [
      Math.max(this.chosen - 1, 0),
      Math.min(this.chosen + 1, last),
    ];
    const next = { ArrowLeft: left, ArrowRight: right, Home: 0, End: last }[
      event.key
    ];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the page would turn
    this.target.querySelectorAll("button")[next].focus();
  }

  // Side by side where a sentence needs more than a line, so that no word hides a curve.
  arrange() {
    if (!this.shown) return;
    const width = (line) =>
      [...line.children].reduce((sum, word) => sum + word.offsetWidth + 3, 0);
    const wraps =
      Math.max(width(this.source), width(this.target)) >
      this.lines.parentElement.clientWidth;
    this.root.classList.toggle("tl-columns", wraps);
    this.connect();
  }

  // Lines from the chosen target word to the source words that it attended to.
  connect() {
    const sources = [...this.source.querySelectorAll("span")];
    const targets = [...this.target.querySelectorAll("button")];
    const row = this.shown.weights[this.chosen] ?? [];
    targets.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === this.chosen));
      button.tabIndex = i === Math.max(this.chosen, 0) ? 0 : -1;
    });
    const frame = this.lines.getBoundingClientRect();
    const columns = this.root.classList.contains("tl-columns");
    const middle = (one, edge) => {
      const box = one.getBoundingClientRect();
      const [x, y] = columns
        ? [box[edge], box.top + box.height / 2]
        : [box.left + box.width / 2, box[edge]];
      return [x - frame.left, y - frame.top];
    };
    const [leave, enter] = columns ? ["right", "left"] : ["bottom", "top"];
    const paths = [];
    sources.forEach((word, i) => {
      const weight = row[i] ?? 0;
      word.style.setProperty("--tl-weight", weight.toFixed(3));
      if (weight < LEAST) return;
      const [x, y] = middle(word, leave);
      const [u, v] = middle(targets[this.chosen], enter);
      const [across, down] = columns ? [(u - x) / 2, 0] : [0, (v - y) / 2];
      const path = document.createElementNS(this.lines.namespaceURI, "path");
      path.setAttribute(
        "d",
        `M${x} ${y}C${x + across} ${y + down} ${u - across} ${v - down} ${u} ${v}`,
      );
      path.setAttribute("stroke-width", 1 + 5 * weight);
      path.setAttribute("stroke-opacity", 0.25 + 0.75 * weight);
      paths.push(path);
    });
    this.lines.replaceChildren(...paths);
  }

  // What the lines show, in words.
  explain() {
    const { source, target, weights } = this.shown;
    const best = (weights[this.chosen] ?? []).map((weight, i) => [
      weight,
      source[i] ?? "the end",
    ]);
    const most = best
      .filter(([weight]) => weight >= LEAST)
      .sort((a, b) => b[0] - a[0])
      .slice(0, 3);
    if (!most.length) return "";
    const listed = most.map(([weight, word]) => `${bare(word)} ${percent(weight)}`);
    return `${bare(target[this.chosen])} ← ${listed.join(", ")}`;
  }

  // Words that the model does not know are named, and a translation without an end.
  warn(cut) {
    const { source, unknown } = this.shown;
    const strange = [...new Set(source.filter((_, i) => unknown[i]).map(bare))];
    const knows = this.wanted.captions ? "does not know" : "has hardly ever seen";
    const told = [];
    if (strange.length)
      told.push(`The model ${knows} ${strange.join(", ")}, so it guesses.`);
    if (cut) {
      const { length } = this.last[1].tokens;
      told.push(`It stopped after ${length} tokens without finding an end.`);
    }
    this.say(told.join(" "));
  }

  say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
  }
}

if (globalThis.document) {
  for (const root of document.querySelectorAll(".tl-translator"))
    new TranslatorInPage(root);
}
