// What a translator has read in training, and the signs by which one of its translations is
// to be doubted: the rule of the library's translation/known.py. A test compares them.

// What Python's str.split() splits at.
const SPACES = /[\p{White_Space}\x1c-\x1f]+/u;

// What nobody sees is no text. Three blanks are spaces, and what Unicode calls default
// ignorable, control characters, and signs around digits or letters that aren't there
// are nothing. Both zero-width joiners stay where they change what is seen: in Arabic to
// Burmese, and in emoji. The library's data/text.py has the same tables.
const BLANKS = /[\0\u200b\u2800\u3164\uffa0]/g;
const NOTHING =
  "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200e\u200f\u202a-\u202e" +
  "\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff0-\ufffb\u{13430}-\u{1345f}" +
  "\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}" +
  "\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]";
const UNSEEN = new RegExp(
  `${NOTHING}+` +
    "|[\u0600-\u0605\u06dd\u0890\u0891\u08e2\u{110bd}\u{110cd}]" +
    `(?!${NOTHING}*[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f])` +
    `|\u070f(?!${NOTHING}*[\u0710-\u074f])`,
  "gu",
);
const LETTER = "[\u0600-\u109f\u1780-\u18af]";
const PICTURE = "[\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\u{1f000}-\u{1faff}]";
const JOINERS = new RegExp(
  `(?<=${LETTER})(?:(\u200d)[\u200c\u200d]*|(\u200c)[\u200c\u200d]*(?=${LETTER}))` +
    `|(?<=${PICTURE})(\u200d)[\u200c\u200d]*(?=${PICTURE})|[\u200c\u200d]+`,
  "gu",
);

export const split = (text) => text.split(SPACES).filter((word) => word);

// A segment on one line: letters composed, single spaces, nothing that nobody sees.
export const oneLine = (text) => {
  const seen = text.replace(BLANKS, " ").replace(UNSEEN, "").replace(JOINERS, "$1$2$3");
  return split(seen.normalize("NFC")).join(" ");
};

export const wordsOf = (text) =>
  oneLine(text)
    .toLowerCase()
    .match(/\p{L}+/gu) ?? [];
export const firstSentence = (text) => text.match(/^[.!?…\s]*[^.!?…]*[.!?…]*/u)[0];

const CERTAIN = ["no words", "unknown", "language", "least sure", "invented", "repeated"];
const LISTED = 5;
const LONGEST = 40;
const OF_100 = { "least sure": 97, "less sure": 88 };

// Read from known.json; without one, a translator is taken to know all words.
export function readKnown({ source, target, wrong, unsure }) {
  const rank = new Map(split(source).map((word, place) => [word, place]));
  return { source: rank, target: new Set(split(target)), wrong, unsure };
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
  let [fixes, meant] = [[], ""];
  if (strange.length) ({ fixes, meant } = corrections(text, known.source));
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
  const line = oneLine(translation);
  const written = line.match(/\p{L}+/gu) ?? [];
  const invented = written.filter((word) => {
    const lower = word.toLowerCase();
    return !known.target.has(lower) && !typed.includes(lower);
  });
  if (invented.length) told.push(["invented", `It has never read ${listed(invented)}.`]);
  const several = /[.!?…] /u.test(oneLine(text)); // sentences, which may begin alike
  const said = several ? line.split(/[.!?…] /u) : [line];
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
  const text = oneLine(typed);
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
    const [capital] = found;
    return shout ? found.toUpperCase() : capital.toUpperCase() + found.slice(capital.length);
  });
  return { fixes, meant: fixes.length ? parts.join("") : "" };
}

const APOSTROPHE =
  /^(?:(what|that|where|who|how|there|here|let|he|she|it)(s)|([\p{L}]+n)(t)|(i)(m|ve))$/u;

// The known word that somebody meant who made one slip. Tried in turn: a missing
// apostrophe, two letters swapped, one too few, one too many, one exchanged. Short words have
// too many neighbours for the last three, and words of more than 40 letters too many for all
// but the first.
export function near(word, rank) {
  const [head, tail] = (word.match(APOSTROPHE) ?? []).slice(1).filter(Boolean);
  if (head && rank.has(head) && rank.has(tail)) return `${head}'${tail}`;
  const signs = [...word];
  if (signs.length < 3 || signs.length > LONGEST) return "";
  const places = [...signs.keys()];
  const [before, after] = [(i) => signs.slice(0, i).join(""), (i) => signs.slice(i).join("")];
  const letters = signs.length > 3 ? [...lettersOf(rank)] : [];
  const between = (i, k) => {
    const [head, tail] = [before(i), after(k)];
    return letters.map((letter) => head + letter + tail);
  };
  const tries = [
    () => places.slice(1).map((i) => before(i - 1) + signs[i] + signs[i - 1] + after(i + 1)),
    () => [...places, signs.length].flatMap((i) => between(i, i)),
    () => (letters.length ? places.map((i) => before(i) + after(i + 1)) : []),
    () => places.flatMap((i) => between(i, i + 1)),
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
