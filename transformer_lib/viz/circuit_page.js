// The pronoun's circuit in a page: a sentence, its translation, and sixteen heads that can be
// silenced. What one change does to some sentences is recorded; for several changes, and for
// the reader's own sentences, it loads the model.

import {
  attended,
  bare,
  calm,
  element,
  knownBy,
  neighbour,
  pause,
  percent,
  unpack,
  Widget,
} from "./page_parts.js";
import { wordsOf } from "./known.js";
import { lead, outcome, PRONOUNS, shares, study } from "./circuit.js";

const NOTHING = { heads: [], hidden: [], swapped: [] };
const KINDS = Object.keys(NOTHING);
const DID = { hidden: "hidden", swapped: "with its other vector" };

// A recorded sentence, with outcomes by kind of change and by head or word.
function unpacked(one) {
  const outcome = ([a, b, c, text]) => ({
    scores: [a / 100, b / 100, c / 100],
    written: one.texts[text],
  });
  return {
    ...one,
    ...outcome([...one.scores, 0]),
    looks: unpack(one.looks, one.words.length),
    recorded: Object.fromEntries(KINDS.map((kind) => [kind, one[kind].map(outcome)])),
  };
}

class Circuit extends Widget {
  constructor(root) {
    super(root, ["source", "target", "right", "partner", "board", "says"]);
    this.pairs = this.pairs.map((pair) => pair.map(unpacked));
    [this.bar, this.several] = [".tl-bar i", "input"].map((one) =>
      root.querySelector(one),
    );
    this.cells = [...this.board.querySelectorAll("button")];
    this.modes = [...root.querySelectorAll(".tl-modes button")];
    this.other = root.querySelectorAll("textarea")[1];
    this.mode = "hidden";
    this.listen();
    this.ready();
    this.choose(...this.pairs[0]);
  }

  listen() {
    super.listen();
    for (const button of this.tries.querySelectorAll("button"))
      button.addEventListener("click", () => {
        const pair = this.pairs[button.dataset.pair];
        const one = Number(button.dataset.one);
        this.choose(pair[one], pair[1 - one]);
      });
    this.cells.forEach((cell, index) =>
      cell.addEventListener("click", () => this.toggle("heads", index)),
    );
    this.board.addEventListener("keydown", (event) => this.follow(event, this.cells, 4));
    this.source.addEventListener("keydown", (event) =>
      this.follow(event, [...this.source.children]),
    );
    for (const button of this.modes)
      button.addEventListener("click", () => this.turn(button.dataset.mode));
    this.root.querySelector(".tl-all").addEventListener("click", () => this.all());
    this.root.querySelector(".tl-reset").addEventListener("click", () => {
      this.changes = { ...NOTHING };
      this.update();
    });
    this.several.addEventListener("change", () => {
      if (!this.several.checked) this.keep();
      this.update();
    });
  }

  // What a press on a word does.
  turn(mode) {
    this.mode = mode;
    for (const one of this.modes)
      one.setAttribute("aria-pressed", String(one.dataset.mode === mode));
    if (!this.several.checked) this.keep();
    this.update();
  }

  // ---- the sentence ----

  // Another sentence, with one that lends its vectors.
  choose(one, twin) {
    this.run++;
    Object.assign(this, { one, twin, changes: { ...NOTHING } });
    this.left = new Array(this.cells.length).fill("");
    [this.input.value, this.other.value] = [one.text, twin?.text ?? ""];
    for (const button of this.tries.querySelectorAll("button")) {
      const { pair, one: which } = button.dataset;
      button.setAttribute("aria-pressed", String(this.pairs[pair][which] === one));
    }
    this.right.textContent = PRONOUNS[one.right];
    this.source.replaceChildren(
      ...[...one.words, "end"].flatMap((word, place) => {
        const button = element("button", { type: "button" }, word);
        if (place === one.words.length) button.className = "tl-end";
        button.addEventListener("click", () => this.toggle(this.mode, place));
        return [button];
      }),
    );
    this.cells.forEach((cell, index) => {
      const [most] = attended(one.looks[index]);
      const weight = one.looks[index][most] ?? 0;
      cell.style.setProperty("--tl-weight", weight.toFixed(3));
      cell.firstChild.textContent = bare(one.words[most] ?? "end");
    });
    this.say("");
    this.update();
  }

  // The reader's sentence.
  async submit() {
    const texts = [this.input.value.trim(), this.other.value.trim()];
    const found = this.pairs.flat().find(({ text }) => text === texts[0]);
    const pair = this.pairs.find((both) => both.includes(found));
    if (found && pair.some(({ text }) => text === texts[1]) && !this.translator) {
      if (found !== this.one) this.choose(found, pair[1 - pair.indexOf(found)]);
      if ((await this.load()) || this.result()) this.update(); // else its notice stays
      return;
    }
    if (!texts[0] || texts.some((text) => this.tooLong(text))) return;
    const { one: shown } = this;
    if (!(await this.load())) return;
    const { source: known } = await knownBy(this.files, this.models[0]);
    if (shown !== this.one) return this.update(); // another one was chosen
    const typed = wordsOf(texts[0]);
    if (!typed.length) return this.say("There is no word in this.");
    const strange = typed.filter((word) => !known.has(word));
    if (2 * strange.length >= typed.length)
      return this.say(`This model does not know ${strange.slice(0, 5).join(", ")}.`);
    const [one, other] = texts.map((text) => text && this.study(text));
    if (!one) return this.say("There is no er, sie or es in the translation.");
    const sizes = (each) => String(each?.groups.map((group) => group.length));
    const same = sizes(other) === sizes(one); // word for word, and token for token
    this.choose(one, same ? other : null);
    if (strange.length)
      this.say(`The model does not know ${strange.join(", ")}, so it guesses.`);
  }

  // A sentence as the script studies it; the model's own pronoun counts as right.
  study(text) {
    const one = study(this.translator, text);
    if (!one) return null;
    const words = one.words ?? one.groups.slice(0, -1).map((_, i) => String(i + 1));
    const right = one.scores.indexOf(Math.max(...one.scores));
    const known = this.pairs.flat().find((other) => other.text === text);
    return { ...one, words, right: known?.right ?? right, looks: one.looks.flat() };
  }

  async load() {
    if (this.translator) return true;
    const found = await this.fetch(this.models);
    if (!found) return false;
    [this.translator] = found;
    this.button.textContent = "Take this sentence";
    return true;
  }

  // ---- changes ----

  // One change at a time: the last one that fits what a press does.
  keep() {
    const [kind] = KINDS.filter((name) => this.changes[name].length);
    this.changes = kind
      ? { ...NOTHING, [kind]: this.changes[kind].slice(-1) }
      : { ...NOTHING };
  }

  toggle(kind, index) {
    const before = this.changes[kind];
    const on = before.includes(index);
    if (kind === "swapped" && !this.twin)
      return this.say("The other sentence must have as many words.");
    const rest = this.several.checked ? this.changes : NOTHING;
    const kept = this.several.checked ? before.filter((one) => one !== index) : [];
    this.changes = { ...rest, [kind]: on ? kept : [...kept, index] };
    this.update();
  }

  // What the changes do: nothing, recorded, or computed.
  result() {
    const made = KINDS.flatMap((kind) =>
      this.changes[kind].map((index) => [kind, index]),
    );
    if (!made.length) return this.one;
    const [[kind, index]] = made;
    if (made.length === 1 && this.one.recorded) return this.one.recorded[kind][index];
    if (!this.translator) return null;
    const studied = (one) => (!one || one.groups ? one : this.study(one.text));
    const [study, other] = [this.one, this.twin].map(studied);
    const heads = this.changes.heads.map((n) => [Math.floor(n / 4), n % 4]);
    return outcome(this.translator, study, {
      ...this.changes,
      heads,
      other,
    });
  }

  // Every head in turn, so that each box says what is left without it.
  async all() {
    const run = ++this.run;
    for (const index of this.cells.keys()) {
      this.changes = { ...NOTHING, heads: [index] };
      this.update();
      if (!calm()) await pause(120);
      if (run !== this.run) return;
    }
    this.changes = { ...NOTHING };
    this.update();
    const least = [...this.cells.keys()].reduce((a, b) =>
      this.share(b) < this.share(a) ? b : a,
    );
    this.state.textContent = `Least is left without ${this.name(least)}: ${this.left[least]}.`;
  }

  share = (index) => parseFloat(this.left[index]);
  name = (index) => `layer ${Math.floor(index / 4) + 1}, head ${(index % 4) + 1}`;

  // ---- drawing ----

  update() {
    const { one, changes } = this;
    const result = this.result();
    this.cells.forEach((cell, index) =>
      cell.setAttribute("aria-pressed", String(changes.heads.includes(index))),
    );
    [...this.source.children].forEach((word, place) => {
      const state = ["hidden", "swapped"].filter((kind) => changes[kind].includes(place));
      word.setAttribute("aria-pressed", String(state.length > 0));
      word.classList.toggle("tl-hidden", state.includes("hidden"));
      word.classList.toggle("tl-swapped", state.includes("swapped"));
    });
    this.partner.textContent =
      this.mode === "swapped" && this.twin ? `with: ${this.twin.text}` : "";
    if (!result) {
      this.state.textContent = "";
      return this.say("Load the translator for several changes at once.");
    }
    if (this.notice.textContent.startsWith("Load")) this.say("");
    const whole = lead(one.scores, one.right);
    const now = lead(result.scores, one.right);
    const left = percent(now / whole);
    if (changes.heads.length === 1 && !changes.hidden.length && !changes.swapped.length)
      this.left[changes.heads[0]] = left;
    this.cells.forEach((cell, index) => {
      cell.lastChild.textContent = this.left[index];
      cell.setAttribute("aria-label", this.label(index));
    });
    this.draw(now / whole, result.scores);
    this.write(result.written);
    this.tell(now, whole, result);
  }

  label(index) {
    const told = `${this.name(index)}, looks at ${this.cells[index].firstChild.textContent}`;
    return this.left[index]
      ? `${told}, ${this.left[index]} of the lead left without it`
      : told;
  }

  // The lead as a bar from the middle: to the right for the right pronoun.
  draw(share, scores) {
    const width = Math.min(Math.abs(share), 1.2) / 2.4;
    this.bar.style.left = share < 0 ? `${100 * (0.5 - width)}%` : "50%";
    this.bar.style.width = `${100 * width}%`;
    this.bar.classList.toggle("tl-wrong", share < 0);
    const chances = shares(scores).map(percent);
    this.says.textContent = PRONOUNS.map((word, i) => `${word} ${chances[i]}`).join("  ");
  }

  // The translation, with the words that are new.
  write(written) {
    const before = this.one.written.split(" ");
    const words = written.split(" ");
    this.target.replaceChildren(
      ...words.flatMap((word, place) => {
        const changed = word !== before[place];
        const kind = changed
          ? "tl-new"
          : PRONOUNS[this.one.right] === word
            ? "tl-most"
            : "";
        return [element("span", kind ? { class: kind } : {}, word), " "];
      }),
    );
  }

  // The same in words.
  tell(now, whole, { scores, written }) {
    const { one, changes } = this;
    const words = [...one.words, "the end"].map(bare);
    const made = [
      ...changes.heads.map((index) => `without ${this.name(index)}`),
      ...["hidden", "swapped"].flatMap((kind) =>
        changes[kind].map((place) => `${words[place]} ${DID[kind]}`),
      ),
    ].join(", ");
    const right = PRONOUNS[one.right];
    const first = PRONOUNS[scores.indexOf(Math.max(...scores))];
    const ahead = Math.abs(now).toFixed(1);
    if (!made) {
      this.state.textContent = `${right} leads by ${ahead}.`;
      return;
    }
    const told =
      now > 0
        ? `${right} leads by ${ahead} instead of ${whole.toFixed(1)}, ${percent(now / whole)}`
        : `${first} leads by ${ahead}, and ${right} has lost`;
    const text =
      written === one.written ? "the translation stays" : `it writes: ${written}`;
    this.state.textContent = `${made[0].toUpperCase()}${made.slice(1)}: ${told}; ${text}`;
  }
}

for (const root of document.querySelectorAll(".tl-circuit")) new Circuit(root);
