// BLEU of one sentence, n-gram by n-gram.

export const tokens = (text) => text.split(/\s+/u).filter(Boolean);

const grams = (words, n) =>
  words.slice(n - 1).map((_, i) => words.slice(i, i + n).join(" "));

// For n = 1 to 4 what becomes of each n-gram: "hit" if the reference has it, "clipped" if it has
// fewer of them, "miss" otherwise. And what BLEU is made of.
export function score(hypothesis, reference) {
  const [words, right] = [tokens(hypothesis), tokens(reference)];
  const rows = [1, 2, 3, 4].map((n) => {
    const left = new Map();
    for (const gram of grams(right, n)) left.set(gram, (left.get(gram) ?? 0) + 1);
    const known = new Set(left.keys());
    return grams(words, n).map((gram) => {
      const count = left.get(gram) ?? 0;
      left.set(gram, count - 1);
      return count > 0 ? "hit" : known.has(gram) ? "clipped" : "miss";
    });
  });
  const matches = rows.map((row) => row.filter((one) => one === "hit").length);
  const totals = rows.map((row) => row.length);
  const penalty = words.length ? Math.min(1, Math.exp(1 - right.length / words.length)) : 0;
  const mean = (precisions) => 100 * penalty * precisions.reduce((a, b) => a * b, 1) ** 0.25;
  const plain = matches.map((match, n) => (totals[n] ? match / totals[n] : 0));
  let zeros = 0; // the first precision without a match gets half a match, the next a quarter
  const smooth = plain.map((p, n) => p || (totals[n] ? 0.5 ** ++zeros / totals[n] : 0));
  const smoothed = matches[0] ? mean(smooth) : 0;
  return { rows, matches, totals, penalty, bleu: mean(plain), smoothed };
}
