// Words to cut: a text, the number of merges, and the pieces. `engine` is the function that holds
// pieces.js.

"use strict";

const { cut, readable, swaps, unpack } = engine();
const SAMPLES = {
  capitals: (text) => text.toUpperCase(),
  "a number": () => "On 29 November 2026, 1234567 people slept.",
  "a name": () => "My friend Grzegorz likes Zanzibar.",
  German: () => "Der Kühlschrank der Großmutter ist leer.",
  French: () => "Le réfrigérateur de ma grand-mère est vide.",
  "emoji, Chinese": () => "🐕 我在这里",
};

class Cutting {
  constructor(root) {
    root.dataset.ready = "yes";
    const find = (name) => root.querySelector(`.tl-${name}`);
    for (const name of ["text", "merges", "count", "pieces", "says"]) this[name] = find(name);
    const { packed, alphabet } = root.dataset;
    this.learned = unpack(packed, alphabet);
    this.rank = new Map(this.learned.map((pair, i) => [pair.join(" "), i]));
    this.first = this.text.value;
    this.text.disabled = false;
    this.text.addEventListener("input", () => this.typed());
    this.merges.addEventListener("input", () => this.show());
    find("swap").addEventListener("click", () => this.swap());
    find("again").addEventListener("click", () => this.write(this.first));
    const samples = Object.entries(SAMPLES).map(([name, change]) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name });
      button.addEventListener("click", () => this.write(change(this.text.value)));
      return button;
    });
    find("again").before(...samples);
    root.addEventListener("keydown", (event) => event.stopPropagation()); // the page would turn
    this.says.setAttribute("aria-live", "polite");
    this.typed();
  }

  // How many merges the slider stands for: steps grow, since the first merges matter most.
  get limit() {
    const share = this.merges.value / this.merges.max;
    return Math.round((this.learned.length + 1) ** share) - 1;
  }

  typed() {
    this.swapped = { texts: swaps(this.text.value), next: 0 };
    this.show();
  }

  write(text) {
    this.text.value = text;
    this.typed();
  }

  // One swap after the other, each of the text as it was typed.
  swap() {
    const { texts, next } = this.swapped;
    if (!texts.length) return;
    this.text.value = texts[next];
    this.swapped.next = (next + 1) % texts.length;
    this.show();
  }

  show() {
    const { limit, rank, text } = this;
    const pieces = cut(text.value, rank, limit);
    const boxes = pieces.map((piece) => {
      const box = document.createElement("span");
      box.textContent = readable(piece);
      return box;
    });
    this.pieces.replaceChildren(...boxes);
    const count = (n) => n.toLocaleString("en");
    this.count.textContent = count(limit);
    this.merges.setAttribute("aria-valuetext", `${count(limit)} merges`);
    const bytes = text.value ? new TextEncoder().encode(` ${text.value}`).length : 0;
    const last = limit ? this.learned[limit - 1].map(readable) : null;
    const told = last
      ? `Merge ${count(limit)} joins ${last[0]} and ${last[1]}.`
      : "No merges: each byte by itself.";
    const noun = pieces.length === 1 ? "piece" : "pieces";
    this.says.textContent = `${count(bytes)} bytes, ${count(pieces.length)} ${noun}. ${told}`;
  }
}

for (const root of document.querySelectorAll(".tl-cut:not([data-ready])")) new Cutting(root);
