// The opening of the first page: a recorded sentence that translates itself once, and a
// slider that breaks it: for each English word, the translator may look at fewer words.

import { calm, element, explain, neighbour, unpack } from "./page_parts.js";

const PACE = 90; // milliseconds a word

class Breaking {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    Object.assign(this, JSON.parse(find("script[type='application/json']").textContent));
    for (const name of ["source", "target", "ticks", "score", "says"])
      this[name + "Part"] = find(`.br-${name}`);
    [this.curves, this.slider] = [find("svg"), find("input")];
    this.slider.addEventListener("input", () => this.show());
    this.targetPart.addEventListener("keydown", (event) => this.follow(event));
    this.targetPart.addEventListener("mouseleave", () => this.look(-1));
    addEventListener("resize", () => this.look(this.place));
    this.show();
  }

  // The translation at the slider's setting, one word after the other.
  show() {
    clearInterval(this.clock);
    const state = this.states[this.slider.value];
    this.state = { ...state, weights: unpack(state.weights, this.source.length) };
    this.slider.setAttribute("aria-valuetext", state.name);
    [...this.ticksPart.children].forEach((tick, i) =>
      tick.classList.toggle("br-on", i === +this.slider.value),
    );
    this.scorePart.firstElementChild.textContent = state.bleu.toFixed(1);
    this.saysPart.textContent = state.says;
    const words = state.words.map((word, place) => this.word(word, place));
    this.targetPart.replaceChildren(...words.flatMap((word) => [word, " "]));
    const peaks = this.state.weights.map((row) => Math.max(...row));
    const sharpest = peaks.indexOf(Math.max(...peaks)); // -1 if it may look at nothing
    this.look(sharpest);
    if (calm()) return;
    for (const word of words) word.classList.add("br-later");
    let next = 0;
    this.clock = setInterval(() => {
      words[next]?.classList.remove("br-later");
      this.look(next < words.length ? next : sharpest);
      if (next++ === words.length) clearInterval(this.clock);
    }, PACE);
  }

  word(text, place) {
    const changed = this.state.changed.includes(place) ? "br-changed" : "";
    const options = { type: "button", tabindex: place ? -1 : 0, class: changed };
    const button = element("button", options, text);
    for (const kind of ["mouseenter", "focus", "click"])
      button.addEventListener(kind, () => this.point(place));
    return button;
  }

  // The reader points at a word: what is left of the play is skipped.
  point(place) {
    clearInterval(this.clock);
    for (const word of this.targetPart.children) word.classList.remove("br-later");
    this.look(place);
    const { words, weights } = this.state;
    const told = explain({ source: this.source, target: words, weights }, place);
    this.saysPart.textContent = told || this.state.says;
  }

  follow(event) {
    const words = [...this.targetPart.children];
    const next = neighbour(event, words.indexOf(event.target), words.length);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the page would turn
    words[next].focus();
  }

  // Where the translator looks for a word; nowhere for -1.
  look(place) {
    this.place = place;
    const row = this.state.weights[place] ?? [];
    const [from, to] = [this.sourcePart.children, this.targetPart.children];
    [...to].forEach((word, i) => word.classList.toggle("br-now", i === place));
    [...from].forEach((word, i) => {
      word.style.setProperty("--tl-weight", row[i] ?? 0);
      word.classList.toggle("br-lit", row[i] > 0.12);
    });
    this.curves.replaceChildren();
    if (!to[place]) return;
    const frame = this.curves.getBoundingClientRect();
    const end = to[place].getBoundingClientRect();
    const [x, y] = [end.left + end.width / 2 - frame.left, end.top - frame.top];
    [...from].forEach((word, i) => {
      if (!row[i]) return;
      const begin = word.getBoundingClientRect();
      const left = begin.left + begin.width / 2 - frame.left;
      const top = begin.bottom - frame.top;
      const middle = (top + y) / 2;
      const path = document.createElementNS(this.curves.namespaceURI, "path");
      path.setAttribute("d", `M${left} ${top}C${left} ${middle} ${x} ${middle} ${x} ${y}`);
      path.setAttribute("stroke-width", (0.6 + 6 * row[i]).toFixed(1));
      path.setAttribute("opacity", Math.min(1, 0.15 + 0.9 * row[i]).toFixed(2));
      this.curves.append(path);
    });
  }
}

for (const root of document.querySelectorAll(".br-stage")) new Breaking(root);
