// Which head decides a pronoun: a translator reads a sentence and its own translation up to
// er, sie or es, and some of its parts are changed.

import { change, chances, encode, margin, read, run, write } from "./kit.js";
import { EOS } from "./translator.js";

export const PRONOUNS = ["er", "sie", "es"];
const GREEDY = { beamSize: 1 };

// A sentence, its translation, and where the last pronoun is written. Nothing if there is none.
export function study(translator, text) {
  const { tokens, text: written } = write(translator, text, undefined, GREEDY);
  const ids = PRONOUNS.map((word) => translator.target.ids.get(word));
  const step = tokens.findLastIndex((token) => ids.includes(token));
  if (step < 0) return null;
  const source = read(translator, text);
  const groups = [...translator.source.words(source.slice(0, -1)), [source.length - 1]];
  const words = text.trim().split(/\s+/);
  const { logits, maps } = run(translator.model, source, tokens.slice(0, step));
  return {
    text,
    written,
    tokens: tokens.filter((token) => token !== EOS),
    step,
    ids,
    source,
    groups, // for each word the places of its tokens, and for the end
    words: words.length === groups.length - 1 ? words : null,
    scores: ids.map((id) => logits.at(-1)[id]),
    looks: maps.cross
      .at(-1)
      .map((heads) =>
        heads.map((row) =>
          groups.map((places) => places.reduce((sum, one) => sum + row[one], 0)),
        ),
      ),
  };
}

// What becomes of a sentence of `study`. Heads are [layer, head] of the attention to the source;
// words are counted, and hidden from this attention at each step, or get the vectors that they
// have in another sentence of the same length.
export function outcome(
  translator,
  one,
  { heads = [], hidden = [], swapped = [], other },
) {
  const places = (words) => words.flatMap((word) => one.groups[word]);
  const vectors = swapped.length ? encode(translator.model, other.source).output : [];
  const changed = change({
    silence: heads.map(([layer, head]) => ({ part: "cross", layer, head })),
    hide: places(hidden).map((place) => ({ place })),
    swap: places(swapped).map((place) => ({ place, vector: vectors[place] })),
  });
  const written = one.tokens.slice(0, one.step);
  const { logits } = run(translator.model, one.source, written, changed);
  return {
    scores: one.ids.map((id) => logits.at(-1)[id]),
    written: write(translator, one.text, changed, GREEDY).text,
  };
}

// Of three scores: by how much one is ahead of the others, and the chances of all.
export const lead = (scores, right) => margin(scores, right, [0, 1, 2]);
export const shares = (scores) => chances(scores, [0, 1, 2]);
