// What each position of a text knows through layers of attention. A mask is a list of rows, one for
// each query, which are true at the keys that this query may look at.

// The positions that each position knows of after so many layers: itself, since a residual
// connection keeps it, and what the positions that it looks at knew one layer before.
export function known(mask, layers) {
  let found = mask.map((row, t) => row.map((_, s) => s === t));
  for (let n = 0; n < layers; n++) {
    const before = found;
    found = mask.map((row, t) =>
      row.map((_, s) => before[t][s] || row.some((looks, via) => looks && before[via][s])),
    );
  }
  return found;
}

// Which positions know their own answer, the next word of the text. The last one's isn't there.
export const lamps = (mask, layers) =>
  known(mask, layers).map((row, t) => row[t + 1] ?? false);

// How position t comes to know its answer: where it looks in the last layer, where that one looked
// in the layer before, and so on. A position that knows it already stays where it is.
export function path(mask, layers, t) {
  const steps = [t];
  for (let n = layers - 1; n >= 0; n--) {
    const at = steps.at(-1);
    const before = known(mask, n);
    const via = mask[at].findIndex((looks, s) => looks && before[s][t + 1]);
    steps.push(before[at][t + 1] ? at : via);
  }
  return steps;
}

export const PRESETS = {
  causal: (t, s) => s <= t,
  "no mask": () => true,
  "one wrong cell": (t, s) => s <= t || (t === 1 && s === 6),
  prefix: (t, s) => s <= t || s < 3,
  window: (t, s) => s <= t && t - s < 3,
  blocks: (t, s) => s <= t && t < 4 === s < 4,
};
