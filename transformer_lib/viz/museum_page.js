// The museum in a page: one sentence and what translators of several years make of it.
// Some translations are recorded; for the reader's own words it loads the models.

import { doubt, unknownAmong } from "./known.js";
import {
  attended,
  carried,
  carry,
  copies,
  explain,
  forget,
  pause,
  soFar,
  unpack,
  Widget,
} from "./page_parts.js";

const SIGNS = /[^\p{L}\p{N}]/gu;

// For each word, whether it is not among the words that both texts have in the same order
// (their longest common subsequence).
export function differing(words, reference) {
  const [ours, theirs] = [words, reference].map((text) =>
    text.map((word) => word.toLowerCase().replace(SIGNS, "")),
  );
  const longest = [...ours, 0].map(() => new Array(theirs.length + 1).fill(0));
  for (let i = ours.length - 1; i >= 0; i--)
    for (let j = theirs.length - 1; j >= 0; j--)
      longest[i][j] =
        ours[i] === theirs[j]
          ? longest[i + 1][j + 1] + 1
          : Math.max(longest[i + 1][j], longest[i][j + 1]);
  let j = 0;
  return ours.map((word, i) => {
    while (j < theirs.length && longest[i][j] === longest[i][j + 1]) j++;
    if (word !== theirs[j]) return true;
    j++;
    return false;
  });
}

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
    this.input.addEventListener("input", () => this.say("")); // it was about the last one
    for (const button of this.tries.children)
      button.addEventListener("click", () => {
        forget(["museum"]);
        this.show(this.sentences[button.dataset.index]);
      });
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
    this.say("");
    const { words, translations } = sentence;
    this.begin(words);
    this.models.forEach(({ name }, index) => {
      const { target, weights, doubt } = translations[name];
      this.write(index, {
        source: words,
        target,
        weights: unpack(weights, words.length),
      });
      this.doubt(index, doubt);
    });
  }

  // ---- the models ----

  // The models are loaded when they are first asked, whatever stands in the field.
  async submit() {
    const text = this.input.value.trim();
    const run = ++this.run;
    this.say("");
    this.begin(text.split(/\s+/).filter(Boolean).slice(0, 60));
    if (!text) {
      forget(["museum"]);
      return this.report("Type a German sentence.");
    }
    if (this.tooLong(text)) return;
    const known = await this.knownOf(this.models[0], () => {});
    if (run !== this.run) return;
    const why = doubt(known, text); // not of the translations yet
    const listed = [...new Set(why?.strange)].slice(0, 5).join(", ");
    const several = this.models.length > 1;
    if (why?.certain && !this.reference) {
      const who = several ? "They do not know" : "It does not know";
      const so = several ? "they do not translate" : "it does not translate";
      return this.say(
        `${listed ? `${who} ${listed}` : "There is no word in this"}, so ${so}. ` +
          "Try a caption of a photograph.",
      );
    }
    if (!(await this.load())) return;
    if (run !== this.run || this.input.value.trim() !== text) {
      if (!this.shown.some(Boolean)) this.submit(); // what stands there by now
      return;
    }
    carry("museum", text);
    if (listed)
      this.say(
        several
          ? `They have hardly ever seen ${listed}, so they guess.`
          : `It has hardly ever seen ${listed}, so it guesses.`,
      );
    this.begun = performance.now();
    for (const [index, translator] of this.translators.entries()) {
      try {
        await this.translate(index, translator, text, run, known);
      } catch (error) {
        return this.say(`This sentence cannot be translated: ${error.message}.`);
      }
      if (run !== this.run) return;
    }
    this.report(this.hint);
    this.says.textContent = this.models
      .map(({ title }, index) => `${title}: ${this.shown[index].target.join(" ")}`)
      .join(" ");
  }

  // A word appears as soon as it is written.
  async translate(index, translator, text, run, known) {
    const weigh = this.meanOfLayer(this.models[index].layer ?? 0);
    const beamSize = translator.decoding.beam_size;
    const steps = translator.translate(text, { beamSize });
    for (;;) {
      const { value, done } = steps.next();
      const picture = translator.picture(text, value, weigh);
      if (!index && !value.tokens[1])
        this.begin(picture.source, unknownAmong(picture.source, known));
      this.write(index, picture);
      const doing = soFar(this.begun);
      if (doing) this.report(`${this.models[index].title}: ${doing}`);
      if (done) {
        const sure = value.logProbability / value.tokens.length;
        const limits = this.models[index]; // the words that they know are the same
        return this.doubt(index, doubt({ ...known, ...limits }, text, value.text, sure));
      }
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
    this.says.textContent = "";
    for (const button of this.tries.children) {
      const { source } = this.sentences[button.dataset.index];
      button.setAttribute("aria-pressed", String(source === this.input.value));
    }
    const own = this.sentences.find(({ source }) => source === this.input.value.trim());
    this.reference = own?.gloss.split(" ");
    this.gloss.textContent = own
      ? `In English: ${own.gloss} Other words are dotted below.`
      : "";
    this.shown = this.models.map(() => null);
    this.rows.forEach((row, index) => {
      row.replaceChildren();
      this.doubt(index, null);
    });
    this.state.textContent = this.hint;
  }

  // Says whether a translation is to be doubted, by the rule of known.js.
  doubt(index, why) {
    const row = this.rows[index].parentElement;
    row.classList.toggle("tl-doubted", Boolean(why));
    row.querySelector(".tl-doubt").textContent = why?.certain
      ? "probably wrong"
      : "look twice";
  }

  write(index, picture) {
    this.shown[index] = picture;
    const buttons = this.buttons(picture.target, (place) => this.choose(index, place));
    const other = this.reference ? differing(picture.target, this.reference) : [];
    buttons.forEach((button, place) => {
      button.tabIndex = place ? -1 : 0;
      button.classList.toggle("tl-differs", Boolean(other[place]));
    });
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
