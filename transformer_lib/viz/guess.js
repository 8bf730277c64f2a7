// A game with recorded attention: the reader points at the word that a pronoun stands
// for, then sixteen heads vote, each for the word at which it looked most.

import { element, neighbour } from "./page_parts.js";

class Guess {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    Object.assign(this, JSON.parse(find("script[type='application/json']").textContent));
    for (const name of ["source", "target", "says", "score", "next", "copy"])
      this[name] = find(`.gs-${name}`);
    Object.assign(this, { place: 0, right: 0, heads: this.names.map(() => 0) });
    this.next.addEventListener("click", () => this.go(this.place + 1));
    this.copy.addEventListener("click", () => this.share());
    this.source.addEventListener("keydown", (event) => this.follow(event));
    const [, score] = location.hash.match(/^#guess-(\d+)$/) ?? [];
    this.show();
    if (score) {
      root.scrollIntoView();
      this.says.textContent = `Somebody found ${score} of ${this.sentences.length}. And you?`;
    }
  }

  // A sentence to point at.
  show() {
    const { words, german } = this.sentences[this.place];
    this.source.replaceChildren(
      ...words.flatMap((word, at) => {
        const button = element("button", { type: "button", tabindex: at ? -1 : 0 }, word);
        button.addEventListener("click", () => this.point(at));
        return [button, " "];
      }),
    );
    const [before, after] = german;
    this.target.replaceChildren(before, element("strong", {}, "___"), after);
    this.says.textContent = "";
    this.next.hidden = true;
    this.tell();
  }

  // The reader points at a word, and the heads vote.
  point(at) {
    if (!this.next.hidden || !this.copy.hidden) return;
    const { words, noun, pronoun, votes } = this.sentences[this.place];
    const found = at === noun;
    this.right += found;
    votes.forEach((vote, head) => (this.heads[head] += vote === noun));
    const count = votes.filter((vote) => vote === noun).length;
    [...this.source.children].forEach((button, i) => {
      const here = votes.filter((vote) => vote === i).length;
      button.classList.toggle("gs-noun", i === noun);
      button.classList.toggle("gs-yours", i === at);
      if (here) button.append(element("span", { class: "gs-votes" }, ` ${here}`));
    });
    this.target.querySelector("strong").textContent = pronoun;
    const own = found ? "Right" : `No: it is the ${words[noun]}`;
    const last = this.place + 1 === this.sentences.length;
    const looked = `${count} of its 16 heads looked there`;
    this.says.textContent = `${own}. When the translator wrote ${pronoun}, ${looked}.`;
    if (last) return this.end();
    this.next.hidden = false;
    this.tell();
    this.next.focus({ preventScroll: true });
  }

  // How it stands.
  tell() {
    const asked = this.place + !this.next.hidden + !this.copy.hidden;
    const best = Math.max(...this.heads);
    this.score.textContent = asked
      ? `You: ${this.right} of ${asked}. The best head: ${best}.`
      : `Sentence 1 of ${this.sentences.length}`;
  }

  end() {
    this.copy.hidden = false;
    this.tell();
    const best = Math.max(...this.heads);
    const first = this.names.filter((_, head) => this.heads[head] === best);
    const second = Math.max(...this.heads.filter((one) => one < best));
    const rest = second > 0 ? `the next best head ${second}` : "no other head found any";
    this.says.textContent +=
      ` You found ${this.right} of ${this.sentences.length},` +
      ` ${first.join(" and ")} found ${best},` +
      ` and ${rest}.`;
  }

  go(place) {
    this.place = place;
    this.show();
    this.source.firstElementChild.focus({ preventScroll: true });
  }

  // The arrow keys move among the words.
  follow(event) {
    const buttons = [...this.source.querySelectorAll("button")];
    const next = neighbour(event, buttons.indexOf(event.target), buttons.length);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[next].focus();
  }

  // The address carries the score.
  async share() {
    history.replaceState(history.state, "", `#guess-${this.right}`);
    try {
      await navigator.clipboard.writeText(location.href);
      this.copy.textContent = "Copied";
    } catch {
      this.copy.textContent = "The address bar has it";
    }
  }
}

for (const root of document.querySelectorAll(".gs-box")) new Guess(root);
