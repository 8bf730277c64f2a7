// Byte-pair encoding: a text is cut into words, and the bytes of each word are joined pair by pair.

// The words (GPT-2's rule): endings like 's; a space may lead letters, digits or signs; spaces,
// but for the one that leads.
const S = "\\p{White_Space}";
export const WORDS = new RegExp(
  `'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^${S}\\p{L}\\p{N}]+|${S}+(?!\\P{White_Space})|${S}+`,
  "gu",
);

// The letter that stands for each byte: itself if it can be seen, or the next of
// those from code point 256 on.
let hidden = 256;
export const LETTERS = Array.from({ length: 256 }, (_, byte) =>
  String.fromCharCode(/[!-~¡-¬®-ÿ]/.test(String.fromCharCode(byte)) ? byte : hidden++),
);
export const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

// The pieces of a word, joined pair by pair in the order of learning; `rank` has the place of each
// pair in this order, and only the first `limit` of them count.
export function joined(word, rank, limit = Infinity) {
  const pieces = [...new TextEncoder().encode(word)].map((byte) => LETTERS[byte]);
  for (;;) {
    let [first, at] = [limit, -1];
    for (let i = 0; i + 1 < pieces.length; i++) {
      const place = rank.get(`${pieces[i]} ${pieces[i + 1]}`);
      if (place < first) [first, at] = [place, i];
    }
    if (at < 0) return pieces;
    pieces.splice(at, 2, pieces[at] + pieces[at + 1]);
  }
}

// The pieces of a text. A space goes before it, so that its first word is like the others.
export const cut = (text, rank, limit) =>
  text ? ` ${text}`.match(WORDS).flatMap((word) => joined(word, rank, limit)) : [];

// The merges, of which each half is the number of a piece, in two letters of `alphabet`.
export function unpack(packed, alphabet) {
  const [pieces, merges] = [LETTERS.slice().sort(), []];
  const seen = new Set(pieces);
  const number = (at) =>
    alphabet.indexOf(packed[at]) * alphabet.length + alphabet.indexOf(packed[at + 1]);
  for (let at = 0; at < packed.length; at += 4) {
    const pair = [pieces[number(at)], pieces[number(at + 2)]];
    merges.push(pair);
    if (!seen.has(pair.join(""))) pieces.push(pair.join(""));
    seen.add(pair.join(""));
  }
  return merges;
}

// A piece as one reads it: ▁ is a space, \xf0 a byte that isn't a whole character.
export function readable(piece) {
  const bytes = Uint8Array.from([...piece].map((letter) => BYTES.get(letter)));
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.replaceAll(" ", "▁");
  } catch {
    const shown = (byte) =>
      byte === 32
        ? "▁"
        : byte < 128
          ? String.fromCharCode(byte)
          : `\\x${byte.toString(16).padStart(2, "0")}`;
    return [...bytes].map(shown).join("");
  }
}

// The texts with two neighbouring letters of the longest word swapped, but not its first or last.
export function swaps(text) {
  const words = text.match(/[\p{L}\p{N}]+/gu) ?? [];
  const word = words.reduce((best, one) => (one.length > best.length ? one : best), "");
  const letters = [...word];
  const places = [...letters.keys()].filter((i) => i > 0 && i + 2 < letters.length);
  return places
    .filter((i) => letters[i] !== letters[i + 1])
    .map((i) => {
      const changed = letters.slice();
      [changed[i], changed[i + 1]] = [letters[i + 1], letters[i]];
      return text.replace(word, () => changed.join(""));
    });
}
