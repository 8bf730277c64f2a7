// The museum in a page: one sentence and what translators of several years make of it.
// Some translations are recorded; for the reader's own words it loads the models.

import {
  attended,
  carried,
  carry,
  copies,
  explain,
  knownWords,
  pause,
  unknownAmong,
  unpack,
  Widget,
  wordsOf,
} from "./page_parts.js";

class Museum extends Widget {
  constructor(root) {
    super(root, ["source", "gloss", "says"]);
    this.rows = [...root.querySelectorAll(".tl-wall > li")].map((row) => {
      const target = row.querySelector(".tl-target");
      target.addEventListener("keydown", (event) =>
        this.follow(event, [...target.querySelectorAll("button")]),
      );
      return target;
    });
    this.listen();
    this.ready();
    this.arrive();
  }

  listen() {
    super.listen();
    for (const button of this.tries.children)
      button.addEventListener("click", () =>
        this.show(this.sentences[button.dataset.index]),
      );
    copies(
      this.root.querySelector(".tl-copy"),
      () => "museum",
      () => this.input.value.trim(),
    );
    addEventListener("hashchange", () => this.arrive());
  }

  // The sentence that the address carries, or the first of the recorded ones.
  arrive() {
    const { name, text } = carried();
    if (name !== "museum") return this.shown ?? this.show(this.sentences[0]);
    const recorded = this.sentences.find(({ source }) => source === text);
    this.root.scrollIntoView();
    if (recorded) this.show(recorded);
    else {
      this.input.value = text;
      this.submit();
    }
  }

  // ---- the recorded translations ----

  show(sentence) {
    this.run++;
    this.input.value = sentence.source;
    this.gloss.textContent = `In English: ${sentence.gloss}`;
    this.say("");
    const { words, translations } = sentence;
    this.begin(words);
    this.models.forEach(({ name }, index) => {
      const { target, weights } = translations[name];
      this.write(index, {
        source: words,
        target,
        weights: unpack(weights, words.length),
      });
    });
  }

  // ---- the models ----

  async submit() {
    const text = this.input.value.trim();
    const recorded = this.sentences.find(({ source }) => source === text);
    if (recorded) return this.show(recorded);
    const run = ++this.run;
    this.gloss.textContent = "";
    this.begin(text.split(/\s+/).filter(Boolean).slice(0, 60));
    if (!text) return this.say("");
    if (this.tooLong(text)) return;
    if (!(await this.load()) || run !== this.run) return;
    carry("museum", text);
    const known = await knownWords(this.files, this.models[0]);
    const strange = wordsOf(text).filter((word) => !known.has(word));
    if (strange.length)
      this.say(
        `They have hardly ever seen ${[...new Set(strange)].slice(0, 5).join(", ")}: they guess.`,
      );
    for (const [index, translator] of this.translators.entries()) {
      try {
        await this.translate(index, translator, text, run, known);
      } catch (error) {
        return this.say(`This sentence cannot be translated: ${error.message}.`);
      }
      if (run !== this.run) return;
    }
    this.says.textContent = this.models
      .map(({ title }, index) => `${title}: ${this.shown[index].target.join(" ")}`)
      .join(" ");
  }

  // A word appears as soon as it is written.
  async translate(index, translator, text, run, known) {
    const weigh = this.meanOfLayer(this.models[index].layer ?? 0);
    const beamSize = translator.decoding.beam_size ?? 1;
    const steps = translator.translate(text, { beamSize });
    for (;;) {
      const { value, done } = steps.next();
      const picture = translator.picture(text, value, weigh);
      if (!index && !value.tokens[1])
        this.begin(picture.source, unknownAmong(picture.source, known));
      this.write(index, picture);
      if (done) return;
      await pause(0);
      if (run !== this.run) return;
    }
  }

  // True when all models are there.
  async load() {
    if (this.translators) return true;
    const translators = await this.fetch(this.models);
    if (!translators) return false;
    const { meanOfLayer } = await import("./translator.js");
    Object.assign(this, { translators, meanOfLayer });
    this.button.textContent = "Translate";
    return true;
  }

  // ---- drawing ----

  // The words of the source; no translation yet.
  begin(words, unknown = []) {
    this.list(words, unknown);
    for (const button of this.tries.children) {
      const { source } = this.sentences[button.dataset.index];
      button.setAttribute("aria-pressed", String(source === this.input.value));
    }
    this.shown = this.models.map(() => null);
    for (const row of this.rows) row.replaceChildren();
    this.state.textContent = this.hint;
  }

  write(index, picture) {
    this.shown[index] = picture;
    const buttons = this.buttons(picture.target, (place) => this.choose(index, place));
    buttons.forEach((button, place) => (button.tabIndex = place ? -1 : 0));
    this.rows[index].replaceChildren(...buttons.flatMap((button) => [button, " "]));
  }

  // Lights up what a word attended to, and says it.
  choose(index, chosen) {
    const picture = this.shown[index];
    const weights = picture.weights[chosen] ?? [];
    this.rows.forEach((row, i) =>
      row.querySelectorAll("button").forEach((button, place) => {
        button.setAttribute("aria-pressed", String(i === index && place === chosen));
        if (i === index) button.tabIndex = place === chosen ? 0 : -1;
      }),
    );
    [...this.source.querySelectorAll("span")].forEach((word, place) => {
      word.style.setProperty("--tl-weight", (weights[place] ?? 0).toFixed(3));
      word.classList.toggle("tl-most", place === attended(weights)[0]);
    });
    const { title, nothing } = this.models[index];
    this.state.textContent = `${title}: ${nothing ?? explain(picture, chosen)}`;
  }
}

for (const root of document.querySelectorAll(".tl-museum")) new Museum(root);
