// The translator in a page: draws what was recorded, loads a model when the reader types,
// and draws what it does with the reader's own words.

import { doubt, firstSentence, unknownAmong, wordsOf } from "./known.js";
import {
  attended,
  calm,
  carried,
  carry,
  copies,
  element,
  explain,
  forget,
  knownBy,
  pause,
  soFar,
  unpack,
  Widget,
} from "./page_parts.js";

const PRONOUNS = ["er", "sie", "es"];
const LONG = 120; // characters; to read them may take a moment

// ---- the widget ----

class TranslatorInPage extends Widget {
  constructor(root) {
    super(root, ["source", "target", "says", "changes", "offers", "settings", "terms"]);
    [this.copy, this.own] = ["copy", "own"].map((name) => root.querySelector(`.tl-${name}`));
    this.chosen = -1;
    this.lines = root.querySelector("svg");
    [this.model, this.search, this.heads] = root.querySelectorAll("select");
    this.words = this.start.slice();
    this.picked = false;
    this.left = {}; // for each language, the last sentence
    this.model.selectedIndex = this.models.findIndex((one) => one.captions);
    this.listen();
    this.ready();
    this.offer();
    this.show(this.recorded(), { final: true, recorded: true });
    this.arrive();
  }

  // The model and the sentence that the address carries, if it does.
  arrive() {
    const { name, text } = carried();
    const index = this.models.findIndex((model) => model.name === name);
    if (index < 0) return;
    this.root.scrollIntoView();
    this.turn(index, text);
  }

  // Another model and a sentence.
  turn(index, text) {
    this.picked = true;
    this.model.selectedIndex = index;
    this.input.value = text;
    this.offer();
    this.write();
  }

  // Until the reader picks a model, captions go to the one that has read only those, and
  // everything else to the first.
  settle() {
    const ours = this.press();
    const index = ours ? this.models.findIndex((one) => one.captions) : 0;
    if (this.picked || this.model.selectedIndex === index) return;
    this.model.selectedIndex = index;
    this.offer();
  }

  listen() {
    super.listen();
    this.input.addEventListener("input", () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.write(), 400);
    });
    this.input.addEventListener("focus", () => {
      if (innerWidth <= 650) this.form.scrollIntoView(); // both lines above the keyboard
    });
    for (const one of this.changes.querySelectorAll("button")) {
      one.addEventListener("click", () =>
        this.change(Number(one.dataset.slot), one.textContent),
      );
    }
    this.model.addEventListener("change", () => this.pick());
    this.search.addEventListener("change", () => this.write());
    this.heads.addEventListener("change", () => this.says.textContent && this.draw());
    this.target.addEventListener("keydown", (event) =>
      this.follow(event, [...this.target.querySelectorAll("button")]),
    );
    this.receive();
    copies(
      this.copy,
      () => this.wanted.name,
      () => this.input.value.trim(),
    );
    addEventListener("hashchange", () => this.arrive());
    new ResizeObserver(() => this.arrange()).observe(this.root);
    document.fonts?.ready.then(() => this.arrange());
  }

  // ---- the reader's own model ----

  // A folder is chosen with the button, or dropped anywhere on the page, which would be left
  // for it otherwise.
  receive() {
    const [field, button] = this.own.querySelectorAll("input, button");
    button.addEventListener("click", () => {
      field.value = ""; // the same folder may be chosen again
      field.click();
    });
    field.addEventListener("change", () => this.add(() => [...field.files]));
    const files = (event) => event.dataTransfer?.types.includes("Files"); // no text
    const mark = (on) => this.root.classList.toggle("tl-drop", on);
    addEventListener("dragover", (event) => {
      if (!files(event)) return;
      event.preventDefault();
      mark(true);
    });
    addEventListener("dragleave", (event) => mark(Boolean(event.relatedTarget)));
    addEventListener("drop", (event) => {
      mark(false);
      if (!files(event)) return;
      event.preventDefault();
      this.root.scrollIntoView({ block: "nearest" });
      const { items, files: plain } = event.dataTransfer; // they can be asked for only now
      const [entries, alone] = [[...items].map((one) => one.webkitGetAsEntry()), [...plain]];
      this.add(({ filesOf }) => (entries.some(Boolean) ? filesOf(entries) : alone));
    });
  }

  // It joins the others, and translates what stands there.
  async add(choose) {
    const told = this.state.textContent;
    try {
      this.report("Reading your folder.");
      const parts = await import("./own_model.js");
      const model = await parts.ownModel(await choose(parts));
      this.models.push(model);
      this.model.append(element("option", {}, model.label));
      this.model.parentElement.hidden = false;
      this.turn(this.models.length - 1, this.input.value);
    } catch (error) {
      this.report(told);
      this.say(error.message);
    }
  }

  // It leaves the menu again if its files turn out to be of no use.
  remove(own) {
    const chosen = this.wanted === own ? this.loaded : this.wanted;
    const index = this.models.indexOf(own);
    this.models.splice(index, 1);
    this.model.options[index].remove();
    this.model.selectedIndex = Math.max(0, this.models.indexOf(chosen));
  }

  // ---- the recorded example ----

  sentence([animal, place, reason] = this.words) {
    return this.pattern
      .replace("{0}", animal)
      .replace("{1}", place)
      .replace("{2}", reason);
  }

  recorded() {
    const found = this.examples[this.words.join(" ")];
    const weights = unpack(found.weights, found.source.length);
    return { ...found, weights, unknown: [] };
  }

  // The recorded answers are those of the model of captions, until it is loaded.
  async change(slot, word) {
    this.words[slot] = word;
    this.input.value = this.sentence();
    this.settle();
    if (this.loaded === this.wanted || !this.wanted.captions) return this.write();
    this.offers.hidden = true;
    const run = ++this.run;
    const picture = this.recorded();
    for (let count = 1; count < picture.target.length && !calm(); count++) {
      this.show(
        { ...picture, target: picture.target.slice(0, count) },
        { all: picture.target, recorded: true },
      );
      await pause(60);
      if (run !== this.run) return;
    }
    this.show(picture, { final: true, recorded: true });
  }

  // Which words are chosen, if the sentence is one of the pattern's; is it?
  press() {
    const key = Object.keys(this.examples).find(
      (one) => this.sentence(one.split(" ")) === this.input.value,
    );
    const ours = key !== undefined;
    for (const one of this.tries.children)
      one.hidden = one.textContent === this.input.value;
    if (ours) this.words = key.split(" ");
    const { captions, source, target } = this.wanted;
    const fits = captions || (ours && `${source} ${target}` === "en de");
    this.changes.hidden = this.picked && !fits;
    for (const one of this.changes.querySelectorAll("button")) {
      const chosen = ours && this.words[one.dataset.slot] === one.textContent;
      one.setAttribute("aria-pressed", String(chosen));
    }
    return ours;
  }

  // ---- the model ----

  get wanted() {
    return this.models[this.model.selectedIndex];
  }

  // Another model: it translates the sentence that stands there or, of another language, the
  // last one in its own.
  pick() {
    const { source, sentences } = this.wanted;
    if (sentences.length && source !== this.input.lang) {
      this.left[this.input.lang] = this.input.value; // for the way back
      this.input.value = this.left[source] || sentences[0];
    }
    this.picked = true;
    this.offer();
    this.clear("");
    this.write();
  }

  // The sentence stands there, and no translation.
  clear(why) {
    const source = this.input.value.split(/\s+/).filter(Boolean);
    const unknown = source.map(() => false);
    this.last = null;
    this.show({ source: source.slice(0, 60), target: [], weights: [], unknown }, {});
    this.says.textContent = "";
    this.say(why);
    if (source.length) return;
    this.source.replaceChildren(); // not even an end
    const language = { en: "an English", de: "a German", fr: "a French" }[this.input.lang];
    this.report(`Type ${language ?? "a"} sentence.`);
    this.forget();
  }

  // The address carries none of its sentences.
  forget() {
    forget(this.models.map(({ name }) => name));
  }

  offer() {
    const { knows, terms } = this.wanted;
    const { sentences, captions, source } = this.picked ? this.wanted : this.models[0];
    this.terms.replaceChildren(element("strong", {}, knows), ` ${terms}`);
    this.input.lang = this.source.lang = this.wanted.source;
    this.target.lang = this.says.lang = this.wanted.target;
    this.tries.hidden = captions;
    this.tries.replaceChildren(
      ...sentences.slice(0, 3).map((text) => {
        const button = element("button", { type: "button", lang: source }, text);
        button.addEventListener("click", () => {
          this.input.value = text;
          this.stay();
          this.submit();
        });
        return button;
      }),
    );
    this.press();
    const ready = this.loaded === this.wanted;
    this.settings.classList.toggle("tl-loaded", ready);
    this.search.disabled = this.heads.disabled = !ready;
    this.copy.hidden = Boolean(this.wanted.read);
  }

  submit() {
    return this.write();
  }

  async load() {
    const { wanted } = this; // another may be, by the time that it is there
    const found = await this.fetch([wanted]);
    if (found && this.loaded !== this.wanted) {
      // else the reader went back to the one that is here
      const { EOS, meanOfLayer } = await import("./translator.js");
      const [translator] = found;
      Object.assign(this, { translator, end: EOS, loaded: wanted });
      this.listHeads(meanOfLayer(-1));
      this.listWidths(translator.decoding.beam_size);
    }
    this.offer();
    return Boolean(found);
  }

  failed([model], error) {
    this.moved = this.wanted !== model; // the reader has chosen another one
    if (model.read) this.remove(model);
    const told = model.read
      ? `The page cannot use your translator: ${error.message}.`
      : `${model.name} could not be loaded (${error.message}). Try again?`;
    if (this.moved && this.loaded === this.wanted) this.say(told); // its answer stays
    else this.clear(told);
  }

  // The button that was pressed goes; the focus stays in the form.
  stay() {
    (this.button.disabled ? this.input : this.button).focus();
  }

  // The heads to choose from; first the one that shows most.
  listHeads(mean) {
    const { n_decoder_layers: layers, n_heads: heads } = this.translator.model.config;
    this.weighings = [["Last layer, average", mean]];
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

  // Translates what stands in the field, word by word, unless half of it is unknown. What is
  // recorded needs no model; anything else loads it.
  async write() {
    clearTimeout(this.waiting);
    const run = ++this.run;
    const typed = this.input.value.trim();
    this.settle();
    if (this.wanted.captions && this.loaded !== this.wanted && this.press()) {
      this.offers.hidden = true;
      return this.show(this.recorded(), { final: true, recorded: true });
    }
    const text = this.wanted.captions ? firstSentence(typed) : typed;
    this.rest = typed.slice(text.length); // what captions leave out
    this.offers.hidden = true;
    if (!text) return this.clear("");
    if (this.tooLong(text)) return this.clear(this.notice.textContent);
    const known = await this.knownOf(this.wanted, () => this.clear(""));
    if (run !== this.run) return;
    const why = doubt(known, text); // of the sentence alone
    if (why?.certain) return this.refuse(text, why, known);
    if (this.loaded !== this.wanted) {
      if (this.button.disabled) return; // it is on its way
      this.clear("");
      const another = () => this.moved && this.loaded !== this.wanted;
      return ((await this.load()) || another()) && this.write(); // of what stands there then
    }
    const options = { beamSize: Number(this.search.value) };
    this.known = known;
    const begun = performance.now();
    if (text.length > LONG) {
      this.clear("");
      this.report("Translating …");
      await pause(30); // its first word takes longest
      if (run !== this.run) return;
    }
    try {
      const steps = this.translator.translate(text, options);
      for (;;) {
        const { value, done } = steps.next();
        this.last = [text, value];
        if (done) {
          if (this.wanted.read) this.forget(); // nobody else has yours
          else carry(this.wanted.name, typed);
          return this.draw();
        }
        this.show(this.picture(), { doing: soFar(begun) });
        await pause(calm() ? 0 : 30);
        if (run !== this.run) return;
      }
    } catch (error) {
      this.clear(`This sentence cannot be translated: ${error.message}.`);
    }
  }

  // Says what the model knows, and offers what may have been meant, sentences with the words
  // that were typed, or another model that knows these words.
  async refuse(text, { strange, asked, meant }, known) {
    const { run } = this;
    const words = wordsOf(text);
    const listed = [...new Set(strange)].slice(0, 5).join(", ");
    const size = known.source.size?.toLocaleString("en"); // a list may be missing
    const why = listed
      ? `This model does not know ${listed}`
      : "There is no word in this";
    const of = this.wanted.of ?? "its training";
    const told = size ? `It knows ${size} words, those of ${of}.` : "";
    this.clear(
      [`${why}, so it does not translate.`, told, asked].filter(Boolean).join(" "),
    );
    if (meant) return this.suggest(meant);
    const seen = words.filter((word) => known.source.has(word));
    const offers = this.near(seen).map((text) => [
      element("button", { type: "button", lang: this.wanted.source }, text),
      this.wanted,
      text,
    ]);
    let most = words.length / 2;
    for (const model of this.models) {
      const { source: theirs } = await knownBy(this.files, model);
      const count = words.filter((word) => theirs.has(word)).length;
      if (!theirs.size || count <= most) continue;
      most = count;
      const label = `${model.label} knows ${count === words.length ? "all" : count} of your words`;
      const button = element("button", { type: "button", class: "tl-other" }, label);
      if (offers[0]?.[1] !== this.wanted) offers.shift();
      offers.unshift([button, model, this.input.value.trim()]);
    }
    if (run !== this.run) return;
    for (const [button, model, text] of offers)
      button.addEventListener("click", () => {
        this.stay();
        this.turn(this.models.indexOf(model), text);
      });
    this.offers.replaceChildren(...offers.map(([button]) => button));
    this.offers.hidden = false;
  }

  // One press types the sentence that was meant.
  suggest(meant) {
    const button = element("button", { type: "button", lang: this.wanted.source }, meant);
    button.addEventListener("click", () => {
      this.input.value = meant + this.rest;
      this.stay();
      this.write();
    });
    this.offers.replaceChildren(button);
    this.offers.hidden = false;
  }

  // Three sentences that the model knows; first those with the rarest of the words.
  near(words) {
    const { sentences } = this.wanted;
    const having = (word) => sentences.filter((one) => wordsOf(one).includes(word));
    const score = new Map(sentences.map((one) => [one, 0]));
    for (const word of new Set(words)) {
      const found = having(word);
      for (const one of found) score.set(one, score.get(one) + 1 / found.length);
    }
    return sentences.toSorted((a, b) => score.get(b) - score.get(a)).slice(0, 3);
  }

  picture() {
    const [, weigh] = this.weighings[this.heads.selectedIndex];
    const picture = this.translator.picture(...this.last, weigh);
    return { ...picture, unknown: unknownAmong(picture.source, this.known) };
  }

  draw() {
    if (!this.last) return;
    const { tokens, logProbability } = this.last[1];
    const cut = tokens.length > 0 && tokens.at(-1) !== this.end;
    const [text, { text: written }] = this.last;
    const why = doubt(this.known, text, written, logProbability / tokens.length);
    this.show(this.picture(), { final: true, cut, why });
    if (why?.meant) this.suggest(why.meant);
  }

  // ---- drawing ----

  // Words and lines; `all` are the words that will stand there, to keep their room.
  show(
    picture,
    {
      final = false,
      cut = false,
      why = undefined,
      recorded = false,
      doing = "",
      all = picture.target,
    },
  ) {
    this.shown = picture;
    this.settings.classList.toggle("tl-recorded", recorded);
    this.list(picture.source, picture.unknown);
    const buttons = this.buttons(all, (place) => this.choose(place));
    for (const button of buttons.slice(picture.target.length))
      button.style.visibility = "hidden";
    this.target.replaceChildren(...buttons.flatMap((button) => [button, " "]));
    const pronoun = picture.target.findLastIndex((word) => PRONOUNS.includes(word));
    this.chosen = final && pronoun >= 0 ? pronoun : picture.target.length - 1;
    this.arrange();
    this.report(final ? explain(this.shown, this.chosen) : doing);
    this.root.classList.toggle("tl-unsure", Boolean(why?.certain));
    this.root.classList.toggle("tl-look", Boolean(why && !why.certain));
    this.warn(cut, why);
    this.says.textContent = final ? picture.target.join(" ") : "";
  }

  choose(index) {
    if (this.chosen === index) return;
    this.chosen = index;
    this.connect();
    this.state.textContent = explain(this.shown, this.chosen);
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
    sources.forEach((word, i) =>
      word.style.setProperty("--tl-weight", (row[i] ?? 0).toFixed(3)),
    );
    for (const place of attended(row)) {
      const weight = row[place];
      const [x, y] = middle(sources[place], leave);
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
    }
    this.lines.replaceChildren(...paths);
  }

  // Says why the translation is to be doubted, when it read only one sentence, and when its
  // translation has no end.
  warn(cut, why) {
    const told = why ? [why.text] : [];
    if (this.rest && this.last)
      told.push("It translates one sentence at a time, here the first.");
    if (cut) {
      const { length } = this.last[1].tokens;
      told.push(`It stopped after ${length} tokens without finding an end.`);
    }
    this.say(told.join(" "));
  }
}

for (const root of document.querySelectorAll(".tl-translator"))
  new TranslatorInPage(root);
