// Attention that is learned before the reader's eyes: settings, a bet, a map and a loss.
// `engine` is the function that holds learning.js; it runs in a worker where it may.

"use strict";

const EXAMPLE = [2, 0, 7, 1, 4, 3, 5, 0];
const LETTERS = "ABCDEFGH";
const MOST = 600; // steps
const GOAL = 0.95; // of the letters, in the mean of ten steps
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

// Takes { settings } for a new layer, then { steps }; answers with what was learned, and the
// number of the run that asked.
function desk(learner, answer) {
  let layer;
  return ({ settings, steps, example, run }) => {
    if (settings) layer = learner(settings);
    const made = Array.from({ length: steps }, () => layer.step());
    answer({ made, run, ...layer.show(example) });
  };
}

// The same desk in a worker, or here if there can be none.
function open(answer) {
  const here = desk(engine().learner, answer);
  const later = (question) => setTimeout(() => here(question), 0);
  try {
    const text = `const { learner } = (${engine})(); onmessage = (event) => desk(event.data);
      const desk = (${desk})(learner, postMessage);`;
    const worker = new Worker(URL.createObjectURL(new Blob([text])));
    let [ask, asked] = [(question) => worker.postMessage(question), []];
    worker.onmessage = ({ data }) => answer(data);
    worker.onerror = () => {
      ask = later;
      asked.forEach(later); // from the start
    };
    return (question) => {
      if (question.settings) asked = [];
      asked.push(question);
      ask(question);
    };
  } catch {
    return later;
  }
}

class Learning {
  constructor(root) {
    root.dataset.ready = "yes";
    const own = Math.random().toString(36).slice(2); // names, if there are two
    for (const one of root.querySelectorAll("[type=radio]")) one.name += own;
    const find = (name) => root.querySelector(`.tl-${name}`);
    Object.assign(this, {
      root,
      calm: matchMedia("(prefers-reduced-motion: reduce)").matches,
    });
    for (const name of ["maps", "curve", "says", "told", "wanted", "go"])
      this[name] = find(name);
    this.bets = [...root.querySelectorAll(".tl-bet")];
    this.tasks = engine().TASKS;
    this.ask = open((found) => this.arrived(found));
    root.addEventListener("input", () => this.reset());
    this.bets.forEach((button, i) =>
      button.addEventListener("click", () => this.start(i === 0)),
    );
    this.go.addEventListener("click", () => this.turn(!this.running));
    find("again").addEventListener("click", () => this.reset());
    root.addEventListener("keydown", (event) => event.stopPropagation()); // the page would turn
    this.reset();
    this.told.setAttribute("aria-live", "polite");
  }

  get settings() {
    const value = (name) =>
      this.root.querySelector(`[data-set="${name}"] :is(:checked, select)`).value;
    return {
      task: value("task"),
      positions: value("positions") === "yes",
      root: value("root") === "yes",
      heads: Number(value("heads")),
      rate: Number(value("rate")),
    };
  }

  // A new layer that knows nothing.
  reset() {
    const { settings } = this;
    this.run = (this.run ?? 0) + 1;
    Object.assign(this, {
      running: false,
      losses: [],
      rights: [],
      bet: null,
      done: false,
    });
    this.goal = this.tasks[settings.task](EXAMPLE);
    this.wanted.textContent = [...this.goal].map((letter) => LETTERS[letter]).join(" ");
    this.waiting = true;
    this.ask({ settings, steps: 0, example: EXAMPLE, run: this.run });
    this.buttons();
    this.told.textContent = "Will it learn this? Place your bet, and it starts.";
  }

  start(bet) {
    this.bet = bet;
    this.told.textContent = `You bet that it ${bet ? "learns this" : "doesn't learn this"}.`;
    this.turn(true);
  }

  turn(running) {
    this.running = running;
    this.buttons();
    if (running && !this.waiting) this.next();
  }

  buttons() {
    for (const one of this.bets) one.disabled = this.bet !== null;
    this.go.disabled = this.bet === null || this.done;
    this.go.textContent = this.running ? "Pause" : "Go on";
  }

  next() {
    this.waiting = true;
    const count = this.losses.length;
    const steps = this.calm ? 50 : count < 60 ? 1 : 3;
    this.ask({ steps, example: EXAMPLE, run: this.run });
  }

  arrived({ made, run, weights, answers }) {
    if (run !== this.run) return; // of a layer that is no longer there
    this.waiting = false;
    for (const { loss, right } of made) {
      this.losses.push(loss);
      this.rights.push(right);
    }
    this.draw(weights, answers);
    const count = this.losses.length;
    const last = this.rights.slice(-10);
    const mean = last.reduce((sum, one) => sum + one, 0) / (last.length || 1);
    const learned = last.length === 10 && mean >= GOAL;
    if (count && (learned || count >= MOST) && !this.done)
      this.finish(learned, count, mean);
    else if (count % 50 === 0 && count && this.running && made.length)
      this.told.textContent = `After ${count} steps, ${percent(mean)} of the letters are right.`;
    if (this.running && !this.done)
      setTimeout(() => this.running && !this.waiting && this.next(), this.calm ? 0 : 40);
  }

  finish(learned, count, mean) {
    Object.assign(this, { done: true, running: false });
    this.buttons();
    const verdict = this.bet === learned ? "You won your bet." : "You lost your bet.";
    this.told.textContent = learned
      ? `Learned after ${count} steps. ${verdict}`
      : `After ${count} steps, only ${percent(mean)} of the letters are right. ${verdict}`;
  }

  // ---- drawing ----

  draw(weights, answers) {
    const size = EXAMPLE.length ** 2;
    const count = weights.length / size;
    const made = (name, text, className) =>
      Object.assign(document.createElement(name), { textContent: text, className });
    const maps = Array.from({ length: count }, (_, h) => {
      const map = made("div", "", "tl-map");
      map.append(...EXAMPLE.map((id) => made("b", LETTERS[id], "")), made("b", "", ""));
      answers.forEach((answer, row) => {
        const first = h * size + row * EXAMPLE.length;
        for (const weight of weights.slice(first, first + EXAMPLE.length)) {
          const cell = made("i", "", "");
          cell.style.setProperty("--tl-value", weight.toFixed(2));
          map.append(cell);
        }
        const right = answer === this.goal[row];
        map.append(made("b", LETTERS[answer], right ? "tl-right" : "tl-wrong"));
      });
      return map;
    });
    this.maps.replaceChildren(...maps);
    const { length } = this.losses;
    const width = Math.max(60, length);
    const points = this.losses.map(
      (loss, i) => `${(100 * (i + 1)) / width},${40 - 14 * Math.min(loss, 2.8)}`,
    );
    this.curve.setAttribute("points", points.join(" "));
    const told = length
      ? `loss ${this.losses.at(-1).toFixed(3)}, ${percent(this.rights.at(-1))} right`
      : "untrained";
    this.says.textContent = `step ${length}: ${told}`;
  }
}

for (const root of document.querySelectorAll(".tl-learn:not([data-ready])"))
  new Learning(root);
