// The museum in a page: one sentence and what translators of several years make of it.
// Some translations are recorded; for the reader's own words it loads the models.

import {
  address,
  attended,
  carried,
  carry,
  copies,
  element,
  explain,
  fetchFile,
  knownWords,
  megabytes,
  neighbour,
  pause,
  sends,
  unknownAmong,
  unpack,
  wordsOf,
} from "./page_parts.js";

const LONGEST = 500; // characters; a longer text is refused

class Museum {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    const data = JSON.parse(find("script[type='application/json']").textContent);
    Object.assign(this, { root, ...data, run: 0, translators: [] });
    for (const name of [
      "source",
      "gloss",
      "state",
      "notice",
      "tries",
      "form",
      "says",
    ])
      this[name] = find(`.tl-${name}`);
    [this.input, this.button] = [find("textarea"), find("form button")];
    this.hint = this.state.textContent;
    this.rows = [...root.querySelectorAll(".tl-wall > li")].map((row, index) => {
      const target = row.querySelector(".tl-target");
      target.addEventListener("keydown", (event) => this.move(event, index));
      return target;
    });
    this.listen(find(".tl-copy"));
    root.classList.add("tl-ready");
    this.arrive();
  }

  listen(copy) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit(this.input.value.trim());
    });
    sends(this.input, this.button);
    for (const button of this.tries.children)
      button.addEventListener("click", () =>
        this.show(this.sentences[button.dataset.index]),
      );
    copies(
      copy,
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
      this.submit(text);
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

  async submit(text) {
    const recorded = this.sentences.find(({ source }) => source === text);
    if (recorded) return this.show(recorded);
    const run = ++this.run;
    this.gloss.textContent = "";
    this.begin(text.split(/\s+/).filter(Boolean).slice(0, 60));
    if (!text) return this.say("");
    if (text.length > LONGEST)
      return this.say(
        `${text.length} characters: a translator takes ${LONGEST}, a sentence at a time.`,
      );
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

  // All models, one after the other; true when they are there.
  async load() {
    if (this.translators.length === this.models.length) return true;
    if (this.button.disabled) return false; // they are on their way
    this.button.disabled = true;
    const whole = megabytes(this.models.reduce((sum, { bytes }) => sum + bytes, 0));
    let sum = 0;
    const arrived = (count) => {
      sum += count;
      this.button.textContent = `${megabytes(sum)} of ${whole}`;
    };
    const label = this.button.textContent;
    this.say("");
    this.state.textContent = `Loading ${whole}.`;
    try {
      const { Translator, meanOfLayer } = await import("./translator.js");
      const load = (model) =>
        Translator.load((file) =>
          fetchFile(address(this.files, model, file), arrived),
        );
      const translators = [];
      for (const model of this.models) translators.push(await load(model));
      Object.assign(this, { translators, meanOfLayer });
      this.button.textContent = "Translate";
      this.say("");
    } catch (error) {
      this.button.textContent = label;
      this.say(`The models could not be loaded (${error.message}). Try again?`);
    }
    this.button.disabled = false;
    this.state.textContent = this.hint;
    return this.translators.length > 0;
  }

  // ---- drawing ----

  // The words of the source; no translation yet.
  begin(words, unknown = []) {
    this.source.replaceChildren(
      ...words.flatMap((word, i) => [
        element("span", unknown[i] ? { class: "tl-unknown" } : {}, word),
        " ",
      ]),
      element("span", { class: "tl-end", title: "the end of the sentence" }, "end"),
    );
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
    this.rows[index].replaceChildren(
      ...picture.target.flatMap((word, place) => {
        const button = element(
          "button",
          { type: "button", tabindex: place ? -1 : 0 },
          word,
        );
        for (const kind of ["mouseenter", "focus", "click"])
          button.addEventListener(kind, () => this.choose(index, place));
        return [button, " "];
      }),
    );
  }

  // Lights up what a word attended to, and says it.
  choose(index, chosen) {
    const picture = this.shown[index];
    const weights = picture.weights[chosen] ?? [];
    this.rows.forEach((row, i) =>
      row.querySelectorAll("button").forEach((button, place) => {
        button.setAttribute(
          "aria-pressed",
          String(i === index && place === chosen),
        );
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

  move(event, index) {
    const buttons = [...this.rows[index].querySelectorAll("button")];
    const next = neighbour(event, buttons.indexOf(event.target), buttons.length);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the page would turn
    buttons[next].focus();
  }

  say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
  }
}

for (const root of document.querySelectorAll(".tl-museum")) new Museum(root);
