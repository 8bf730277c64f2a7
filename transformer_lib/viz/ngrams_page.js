// A translation to edit, and its BLEU. `engine` is the function that holds ngrams.js.

"use strict";

const { score, tokens } = engine();

class Editing {
  constructor(root) {
    root.dataset.ready = "yes";
    const find = (name) => root.querySelector(`.tl-${name}`);
    for (const name of ["text", "board", "table", "says"]) this[name] = find(name);
    this.reference = root.dataset.reference;
    this.text.disabled = false;
    this.text.addEventListener("input", () => this.show());
    for (const button of root.querySelectorAll("button"))
      button.addEventListener("click", () => {
        this.text.value = button.dataset.text;
        this.show();
      });
    root.addEventListener("keydown", (event) => event.stopPropagation()); // the page would turn
    this.says.setAttribute("aria-live", "polite");
    this.show();
  }

  show() {
    const words = tokens(this.text.value);
    const found = score(this.text.value, this.reference);
    const made = (kind, text, column, row) => {
      const cell = document.createElement("span");
      Object.assign(cell, { className: `tl-${kind}`, textContent: text });
      cell.style.gridArea = `${row} / ${column} / ${row + 1} / ${column + 2}`;
      return cell;
    };
    const name = (n, row) => {
      const cell = document.createElement("span");
      Object.assign(cell, { className: "tl-name", textContent: n });
      cell.style.gridArea = `${row} / 1 / ${row + 1} / 2`;
      return cell;
    };
    const size = Math.max(words.length, 8);
    this.board.style.gridTemplateColumns = `1.6em repeat(${2 * size}, minmax(0, 1fr))`;
    const bars = found.rows.flatMap((row, n) =>
      row.map((kind, i) => made(kind, "", 2 + 2 * i + n, 4 - n)),
    );
    const names = found.rows.map((_, n) => name(n + 1, 4 - n));
    const labels = words.map((word, i) => made("word", word, 2 + 2 * i, 5));
    this.board.replaceChildren(...names, ...bars, ...labels);
    const { matches, totals, penalty, bleu, smoothed } = found;
    const parts = matches.map((match, n) => `${match} of ${totals[n]}`);
    [...this.table.children].forEach((cell, n) => {
      cell.lastChild.textContent = n < 4 ? parts[n] : penalty.toFixed(3);
    });
    const [plain, smooth] = [bleu, smoothed].map((one) => one.toFixed(1));
    const again = plain === smooth ? "" : `, smoothed ${smooth}`;
    this.says.textContent = `BLEU ${bleu.toFixed(1)}${again}`;
  }
}

for (const root of document.querySelectorAll(".tl-bleu:not([data-ready])")) new Editing(root);
