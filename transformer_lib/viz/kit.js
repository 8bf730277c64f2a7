// Experiments with a translator of translator.js: heads are silenced, words hidden, vectors
// swapped and masks painted, while it reads and writes a sentence.
//
// Source tokens are counted from 0, the end of the sentence included, and steps too: step
// 0 writes the first target token. `part` is "encoder", "decoder" or "cross".

import { BOS, EOS } from "./translator.js";

// What is changed; every field may be left out.
//   silence  [{ part, layer, head, step }]  heads that contribute nothing; without a step, always
//   hide     [{ place, step, part }]        source tokens that nobody attends to; `part` is "cross"
//   swap     [{ place, vector, layer }]     other vectors for source tokens: those that go into
//                                           an encoder layer, or, without one, come out of the last
//   masks    { encoder, decoder, cross }    [step][place]: what may be attended to (true); or a
//                                           function of step, place, layer and head
export function change({ silence = [], hide = [], swap = [], masks = {} }) {
  const now = (one, step) => one.step === undefined || one.step === step;
  const open = (mask, ...at) =>
    typeof mask === "function" ? mask(...at) : (mask[at[0]]?.[at[1]] ?? true);

  // What a layer may look at while it makes the vector of one step.
  const at = (step) => (part, layer) => {
    const silenced = silence.filter(
      (one) => one.part === part && one.layer === layer && now(one, step),
    );
    const hidden = hide.filter((one) => (one.part ?? "cross") === part && now(one, step));
    const mask = masks[part];
    return {
      silent: (head) => silenced.some((one) => one.head === head),
      allows: (head, place) =>
        !hidden.some((one) => one.place === place) &&
        (!mask || open(mask, step, place, layer, head)),
    };
  };

  const vectors = (given, layer) => {
    const changed = given.slice();
    for (const one of swap) if (one.layer === layer) changed[one.place] = one.vector;
    return changed;
  };
  return { at, vectors };
}

// The token ids of a text as the model reads it, with the end.
export const read = (translator, text) => [
  ...translator.source.encode(translator.prepare(text)),
  EOS,
];

// The vectors of the source: those that go into each encoder layer, and those that come out
// of the last.
export function encode(model, source) {
  const layers = [];
  let output;
  const vectors = (given, layer) => {
    if (layer === undefined) output = given;
    else layers[layer] = given;
  };
  model.start(source, { at: () => () => ({}), vectors });
  return { layers, output };
}

// Lets the model read the source and the target, its own or another. Gives the logits of
// each target token and of the one after them, and all attention: maps.cross[step][layer][head],
// the same for "decoder", and for "encoder" with the places of the source as steps.
export function run(model, source, target, changed = change({})) {
  let state = model.start(source, changed);
  const [logits, cross, decoder] = [[], [], []];
  [BOS, ...target].forEach((token, step) => {
    const found = model.step(token, state, changed.at(step));
    state = found.state;
    logits.push(found.logits);
    cross.push(found.cross);
    decoder.push(found.self ?? []);
  });
  const encoder = (state.encoder?.maps ?? []).reduce(
    (rows, layer, depth) => {
      layer.forEach((heads, place) => (rows[place][depth] = heads));
      return rows;
    },
    source.map(() => []),
  );
  return { logits, maps: { encoder, decoder, cross } };
}

// What the translator writes under a change: its tokens, its text, its score.
export function write(translator, text, changed = change({}), options = {}) {
  const steps = translator.translate(text, { ...options, change: changed });
  for (;;) {
    const { value, done } = steps.next();
    if (done) return value;
  }
}

// By how much a token is ahead of the best of some others; negative if it is behind.
export const margin = (logits, token, others) =>
  logits[token] -
  Math.max(...others.filter((one) => one !== token).map((one) => logits[one]));

// The chances of some tokens among themselves.
export function chances(logits, tokens) {
  const most = Math.max(...tokens.map((token) => logits[token]));
  const powers = tokens.map((token) => Math.exp(logits[token] - most));
  const sum = powers.reduce((total, one) => total + one, 0);
  return powers.map((one) => one / sum);
}
