// What a translator has read in training, and the signs by which one of its translations is
// to be doubted: the rule of the library's translation/known.py. A test compares them.

const NOTHING = /[\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\p{DI}]/gu; // what nobody sees
const line = (text) =>
  text
    .replace(/[\0\u200b\u3164\uffa0]/g, " ")
    .replace(NOTHING, "")
    .normalize("NFC")
    .trim()
    .replace(/\s+/gu, " ");
export const wordsOf = (text) =>
  line(text)
    .toLowerCase()
    .match(/\p{L}+/gu) ?? [];
export const firstSentence = (text) => text.match(/^[^.!?…]*[.!?…]*/u)[0];

const CERTAIN = ["no words", "unknown", "language", "least sure", "invented", "repeated"];
const LISTED = 5;
const LONGEST = 40;
const OF_100 = { "least sure": 97, "less sure": 88 };

// Read from known.json; without one, a translator is taken to know all words.
export function readKnown({ source, target, wrong, unsure }) {
  const rank = new Map(source.split(" ").map((word, place) => [word, place]));
  return { source: rank, target: new Set(target.split(" ")), wrong, unsure };
}
const all = { has: () => true };
export const knowsAll = { source: all, target: all, wrong: null, unsure: null };

// For each of some words as they stand in a sentence, whether it is unknown.
export const unknownAmong = (words, { source }) =>
  words.map((word) => wordsOf(word).some((part) => !source.has(part)));

const cut = (text) =>
  [...text].length <= LONGEST ? text : [...text].slice(0, LONGEST).join("") + "…";
const listed = (words) => [...new Set(words)].slice(0, LISTED).map(cut).join(", ");

// Why a translation is to be doubted; undefined if nothing speaks against it. Without a
// translation, what can be said of the sentence alone.
export function doubt(known, text, translation = "", certainty = 0) {
  const typed = wordsOf(text);
  const strange = typed.filter((word) => !known.source.has(word));
  let { fixes, meant } = corrections(text, known.source);
  const told = new Map();
  if (!typed.length) told.set("no words", "There is no word in this.");
  else if (2 * strange.length >= typed.length) {
    told.set("unknown", `The model does not know ${listed(strange)}.`);
    if (2 * typed.filter((word) => known.target.has(word)).length > typed.length)
      told.set("language", "This looks like the language that it translates into.");
    if (fixes.length < strange.length) [fixes, meant] = [[], ""];
  } else {
    for (const [sign, why] of signs(known, text, translation, certainty))
      told.set(sign, why);
    if (strange.length)
      told.set("rare", `The model does not know ${listed(strange)}, so it guesses.`);
  }
  if (!told.size) return undefined;
  const certain = CERTAIN.some((sign) => told.has(sign));
  const start = certain ? "This is probably wrong." : "Look twice.";
  const asked = fixes.length ? `Did you mean “${fixes.join(", ")}”?` : "";
  const whole = [start, ...told.values(), asked].join(" ").trim();
  return { certain, signs: [...told.keys()], text: whole, meant, strange, asked };
}

// The signs that a translation has, and what to say about each.
function signs(known, text, translation, certainty) {
  const told = [];
  const limits = [
    ["least sure", known.wrong],
    ["less sure", known.unsure],
  ];
  for (const [sign, limit] of limits)
    if (!told.length && (limit ?? null) !== null && certainty < limit)
      told.push([
        sign,
        `The model is less sure of it than of ${OF_100[sign]} in 100 sentences of its kind.`,
      ]);
  const typed = wordsOf(text);
  const written = line(translation).match(/\p{L}+/gu) ?? [];
  const invented = written.filter((word) => {
    const lower = word.toLowerCase();
    return !known.target.has(lower) && !typed.includes(lower);
  });
  if (invented.length) told.push(["invented", `It has never read ${listed(invented)}.`]);
  const several = /[.!?…]\s+\S/u.test(text); // sentences, which may begin alike
  const said = several ? translation.split(/[.!?…]\s+/u) : [translation];
  const again = said.map((part) => twice(wordsOf(part))).find(Boolean);
  if (again && !twice(typed)) told.push(["repeated", `It says “${cut(again)}” twice.`]);
  return told;
}

// The first two neighbouring words that stand there again.
function twice(words) {
  const pairs = words.slice(1).map((word, place) => `${words[place]} ${word}`);
  return pairs.find((pair, place) => pairs.indexOf(pair) < place);
}

// ---- did you mean ----

// Known words for the unknown ones that are one slip away from them, and the text with
// these. A word with a capital inside a sentence is taken for a name.
export function corrections(typed, rank) {
  const text = line(typed);
  const fixes = [];
  let first = true;
  const shout = text === text.toUpperCase();
  const parts = (text.match(/\p{L}+|\P{L}+/gu) ?? []).map((part) => {
    const lower = part.toLowerCase();
    if (!/\p{L}/u.test(part)) {
      first ||= /^\s*[.!?…]/u.test(part);
      return part;
    }
    const name = !first && !shout && part !== lower;
    first = false;
    if (rank.has(lower) || name) return part;
    const found = near(lower, rank);
    if (!found) return part;
    fixes.push(found);
    if (part === lower) return found;
    return shout ? found.toUpperCase() : found[0].toUpperCase() + found.slice(1);
  });
  return { fixes, meant: fixes.length ? parts.join("") : "" };
}

const APOSTROPHE =
  /^(?:(what|that|where|who|how|there|here|let|he|she|it)(s)|([\p{L}]+n)(t)|(i)(m|ve))$/u;

// The known word that somebody meant who made one slip. Tried in turn: a missing
// apostrophe, two letters swapped, one too few, one too many, one exchanged. Short words have
// too many neighbours for the last three.
export function near(word, rank) {
  const [head, tail] = (word.match(APOSTROPHE) ?? []).slice(1).filter(Boolean);
  if (head && rank.has(head) && rank.has(tail)) return `${head}'${tail}`;
  if (word.length < 3) return "";
  const places = [...Array(word.length).keys()];
  const ends = [...places, word.length];
  const [before, after] = [(i) => word.slice(0, i), (i) => word.slice(i)];
  const letters = word.length > 3 ? [...lettersOf(rank)] : [];
  const tries = [
    () => places.slice(1).map((i) => before(i - 1) + word[i] + word[i - 1] + after(i + 1)),
    () => ends.flatMap((i) => letters.map((letter) => before(i) + letter + after(i))),
    () => (letters.length ? places.map((i) => before(i) + after(i + 1)) : []),
    () => places.flatMap((i) => letters.map((letter) => before(i) + letter + after(i + 1))),
  ];
  for (const some of tries) {
    const found = some().filter((one) => rank.has(one));
    if (found.length) return found.reduce((a, b) => (rank.get(a) <= rank.get(b) ? a : b));
  }
  return "";
}

const alphabets = new WeakMap();
function lettersOf(rank) {
  if (!alphabets.has(rank)) alphabets.set(rank, new Set([...rank.keys()].join("")));
  return alphabets.get(rank);
}
