// A mask to paint: a board of cells, and for each row a lamp for one, two and three layers.
// `engine` is the function that holds masks.js.

"use strict";

const DEPTHS = [1, 2, 3];
const { lamps, path, PRESETS } = engine();
const quoted = (word) => `\u201c${word}\u201d`;

class Painting {
  constructor(root) {
    root.dataset.ready = "yes";
    const all = (kind) => [...root.querySelectorAll(kind)];
    Object.assign(this, {
      cells: all(".tl-cell"),
      lights: all(".tl-lamp"),
      presets: all(".tl-preset"),
      words: all(".tl-word").map((one) => one.textContent),
      says: root.querySelector(".tl-says"),
    });
    this.size = this.words.length;
    for (const cell of this.cells) cell.disabled = false;
    this.cells.forEach((cell, i) => (cell.tabIndex = i ? -1 : 0));
    addEventListener("pointerdown", (event) => this.press(event));
    root.addEventListener("pointerover", (event) => this.drag(event));
    root.addEventListener("click", (event) => this.click(event));
    root.addEventListener("keydown", (event) => this.move(event));
    this.says.setAttribute("aria-live", "polite");
    this.show();
  }

  get mask() {
    const painted = this.cells.map((cell) => cell.ariaPressed === "true");
    return this.words.map((_, t) => painted.slice(t * this.size, (t + 1) * this.size));
  }

  // ---- what the reader does ----

  paint(cell, value) {
    cell.setAttribute("aria-pressed", value);
    for (const one of this.presets) one.setAttribute("aria-pressed", false);
    this.show();
  }

  // A mouse paints as soon as it is down, and on as it moves. Fingers and keys click.
  press({ target, pointerType, button }) {
    this.down = pointerType === "mouse" && button === 0 && this.cells.includes(target);
    if (!this.down) return;
    this.brush = target.ariaPressed !== "true";
    this.paint(target, this.brush);
  }

  drag({ target, buttons }) {
    const painting = this.down && buttons === 1 && this.cells.includes(target);
    if (painting) this.paint(target, this.brush);
  }

  click({ target, detail }) {
    const painted = this.down && detail > 0; // no key
    this.down = false;
    if (this.cells.includes(target) && !painted)
      this.paint(target, target.ariaPressed !== "true");
    if (this.lights.includes(target)) this.explain(this.lights.indexOf(target));
    if (this.presets.includes(target)) this.start(target);
  }

  start(preset) {
    const allowed = PRESETS[preset.textContent];
    this.cells.forEach((cell, i) => {
      const [t, s] = [Math.floor(i / this.size), i % this.size];
      cell.setAttribute("aria-pressed", allowed(t, s));
    });
    for (const one of this.presets) one.setAttribute("aria-pressed", one === preset);
    this.show();
  }

  move(event) {
    event.stopPropagation(); // the page would turn
    const at = this.cells.indexOf(event.target);
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (at < 0 || !steps[event.key]) return;
    event.preventDefault();
    const [right, down] = steps[event.key];
    const [s, t] = [(at % this.size) + right, Math.floor(at / this.size) + down];
    if (Math.min(s, t) < 0 || Math.max(s, t) >= this.size) return;
    const next = this.cells[t * this.size + s];
    this.cells[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // ---- what is shown ----

  show() {
    const { mask, words } = this;
    const lit = DEPTHS.map((layers) => lamps(mask, layers));
    this.lights.forEach((light, i) => {
      light.disabled = !lit[i % DEPTHS.length][Math.floor(i / DEPTHS.length)];
    });
    this.mark([]);
    const [one, two, three] = lit.map((found) => found.filter(Boolean).length);
    const counts = `${one} through one layer, ${two} through two, ${three} through three`;
    const empty = words.filter((_, t) => !mask[t].includes(true)).map(quoted);
    const masked = empty.length ? ` Fully masked: ${empty.join(", ")}.` : "";
    this.says.textContent = `Words that can see their own answer: ${counts}.${masked}`;
  }

  // The way of the answer to a lamp.
  explain(light) {
    const layers = DEPTHS[light % DEPTHS.length];
    const t = Math.floor(light / DEPTHS.length);
    const steps = path(this.mask, layers, t);
    const looks = steps
      .slice(1)
      .map((s, n) => ({ from: steps[n], to: s, layer: layers - n }))
      .filter(({ from, to }) => from !== to);
    this.mark(looks.map(({ from, to }) => from * this.size + to));
    const told = looks.map(
      ({ to, layer }, n) =>
        `${n ? "which looked" : "looks"} in layer ${layer} at ${quoted(this.words[to])}`,
    );
    const [word, answer] = [t, t + 1].map((i) => quoted(this.words[i]));
    this.says.textContent = `To predict ${answer}, ${word} ${told.join(", ")}.`;
  }

  mark(marked) {
    this.cells.forEach((cell, i) => cell.classList.toggle("tl-way", marked.includes(i)));
  }
}

for (const root of document.querySelectorAll(".tl-paint:not([data-ready])"))
  new Painting(root);
