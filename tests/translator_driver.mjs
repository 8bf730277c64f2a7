// Runs the translator of the pages under Node: what is to be done comes as JSON on standard input.
//   { tokenizer, texts }                  the ids of texts, and the texts of these ids
//   { prepare, texts }                    the texts as a model with these settings reads them
//   { restore: [[written, typed, prepared, whole]] }  captions as people write them
//   { folder, jobs, options, head }       translations, and what a head attended to; a job is a text or a list of ids
//   { ..., layer }                        the same, and what the heads of a layer attended to in the mean
//   { ..., cross: true }                  all hypotheses of lists of ids, and what every layer and head attended to
//   { ..., timed: true }                  the same, with the milliseconds of processor time
//   { ..., plain: true }                  without WebAssembly
//   { folder, doubts: [[text, translation, certainty]] }  what the page says of them, by what the model knows; without
//                                         a translation, the model translates first if the page would
//   { products: [{ rows, x, bias }] }     W x + bias by WebAssembly; W is a list of rows
//   { folder, pairs }                     for each pair of texts what becomes of both pronouns without each head and
//                                         word, and with the vector of each word from the other text
//   { learn: [settings], steps, example } the losses of layers that learn, and what they make of an example
//   { masks, layers }                     what is known through layers of attention, the lamps, and the way to each;
//                                         and the masks from which a reader starts
//   { cut: { packed, alphabet }, texts, limits }  the pieces of texts with so many merges, as one reads them, and all
//                                         their swaps
//   { bleu: [[hypothesis, reference]] }   BLEU of single sentences, and what it is made of
//   { costs: { cases, numbers } }         what models cost, each as [model, device, settings]; and numbers as they are shown
//   { folder, experiments }               logits and attention while source and target ids are read under a change;
//                                         a swapped vector is { place, layer, from: ids, at: place }
import { readFileSync } from "node:fs";
import { change, encode, run, write } from "../transformer_lib/viz/kit.js";
import { costs, power, short, size, time } from "../transformer_lib/viz/costs.js";
import { outcome, study } from "../transformer_lib/viz/circuit.js";
import { learner } from "../transformer_lib/viz/learning.js";
import { known, lamps, path, PRESETS } from "../transformer_lib/viz/masks.js";
import { doubt, readKnown } from "../transformer_lib/viz/known.js";
import { score } from "../transformer_lib/viz/ngrams.js";
import { cut, readable, swaps, unpack } from "../transformer_lib/viz/pieces.js";
import { makeRoom, product } from "../transformer_lib/viz/product.js";
import { meanOfLayer, Tokenizer, Translator } from "../transformer_lib/viz/translator.js";

const asked = JSON.parse(readFileSync(0, "utf8"));

function bytes(name) {
  const found = readFileSync(`${asked.folder}/${name}`);
  return found.buffer.slice(found.byteOffset, found.byteOffset + found.byteLength);
}

function finish(steps) {
  for (;;) {
    const { value, done } = steps.next();
    if (done) return value;
  }
}

const kept = ({ tokens, logProbability, score, text, cross }) => ({
  tokens,
  logProbability,
  score,
  text,
  ...(asked.cross && { cross: cross.map((step) => step.map((layer) => layer.map((head) => [...head]))) }),
});
const pair = (tokenizer, text) => {
  const ids = tokenizer.encode(text);
  return [ids, tokenizer.decode(ids)];
};

// What a change is made of comes as JSON, but for the vectors of another sentence.
function made({ swap = [], ...other }, model) {
  const found = swap.map(({ place, layer, from, at }) => {
    const { layers, output } = encode(model, from);
    return { place, layer, vector: (layer === undefined ? output : layers[layer])[at] };
  });
  return change({ ...other, swap: found });
}

// Float32Arrays as lists.
const listed = (value) =>
  ArrayBuffer.isView(value) || (Array.isArray(value) && typeof value[0] === "number")
    ? [...value]
    : Array.isArray(value)
      ? value.map(listed)
      : value;

// Without each head and word, and with each vector of the other text, by turns.
function byTurns(translator, texts) {
  const both = texts.map((text) => study(translator, text));
  return both.map((one, index) => {
    const other = both[1 - index];
    const without = (given) => outcome(translator, one, { ...given, other });
    const words = one.groups.map((_, word) => word);
    const heads = one.looks.flatMap((row, layer) => row.map((_, head) => [layer, head]));
    return {
      ...one,
      heads: heads.map((head) => without({ heads: [head] })),
      hidden: words.map((word) => without({ hidden: [word] })),
      swapped: words.map((word) => without({ swapped: [word] })),
    };
  });
}

if (asked.learn) {
  const answers = asked.learn.map((settings) => {
    const layer = learner(settings);
    const losses = Array.from({ length: asked.steps }, () => layer.step().loss);
    return { losses, ...(asked.example && layer.show(asked.example)) };
  });
  process.stdout.write(JSON.stringify(answers));
} else if (asked.costs) {
  const words = asked.costs.numbers.map((number) => [short(number), size(number), time(number), power(number)]);
  process.stdout.write(JSON.stringify({ found: asked.costs.cases.map((one) => costs(...one)), words }));
} else if (asked.masks) {
  const { masks, layers } = asked;
  const eight = [0, 1, 2, 3, 4, 5, 6, 7];
  const lit = masks.map((mask) => lamps(mask, layers));
  const table = ([name, allowed]) => [name, eight.map((t) => eight.map((s) => allowed(t, s)))];
  const answer = {
    known: masks.map((mask) => known(mask, layers)),
    lamps: lit,
    paths: lit.map((row, i) => row.map((on, t) => (on ? path(masks[i], layers, t) : null))),
    presets: Object.fromEntries(Object.entries(PRESETS).map(table)),
  };
  process.stdout.write(JSON.stringify(answer));
} else if (asked.cut) {
  const merges = unpack(asked.cut.packed, asked.cut.alphabet);
  const rank = new Map(merges.map((one, i) => [one.join(" "), i]));
  const answers = asked.texts.map((text) => ({
    swaps: swaps(text),
    pieces: asked.limits.map((limit) => cut(text, rank, limit)),
    read: cut(text, rank, asked.limits.at(-1)).map(readable),
  }));
  process.stdout.write(JSON.stringify({ merges, answers }));
} else if (asked.bleu) {
  process.stdout.write(JSON.stringify(asked.bleu.map(([mine, right]) => score(mine, right))));
} else if (asked.products) {
  const answers = asked.products.map(({ rows, x, bias }) => {
    const room = makeRoom([[rows.length, x.length], [rows.length]]);
    const weight = room(rows.length * x.length);
    weight.set(rows.flat());
    const own = bias && room(rows.length);
    own?.set(bias);
    return [...product({ weight, bias: own }, Float32Array.from(x))];
  });
  process.stdout.write(JSON.stringify(answers));
} else if (asked.prepare) {
  const ready = asked.texts.map((text) => Translator.prototype.prepare.call(asked.prepare, text));
  process.stdout.write(JSON.stringify(ready));
} else if (asked.restore) {
  const restored = asked.restore.map((one) => Translator.prototype.restore.call({ kind: "captions" }, ...one));
  process.stdout.write(JSON.stringify(restored));
} else if (asked.doubts) {
  const known = readKnown(JSON.parse(readFileSync(`${asked.folder}/known.json`, "utf8")));
  const open = () => Translator.load(async (name) => bytes(name));
  const translator = asked.doubts.some(([, translation]) => translation === undefined) && (await open());
  const answers = asked.doubts.map(([text, translation, certainty]) => {
    let why = doubt(known, text);
    let written = translation;
    if (!why?.certain || translation !== undefined) {
      let mean = certainty;
      if (translation === undefined) {
        const found = finish(translator.translate(text, asked.options));
        [written, mean] = [found.text, found.logProbability / found.tokens.length];
      }
      why = doubt(known, text, written, mean);
    }
    return [written ?? null, why ? { certain: why.certain, signs: why.signs, text: why.text, meant: why.meant } : null];
  });
  process.stdout.write(JSON.stringify(answers));
} else if (asked.tokenizer) {
  const tokenizer = new Tokenizer(asked.tokenizer);
  process.stdout.write(
    JSON.stringify(asked.texts.map((text) => pair(tokenizer, text))),
  );
} else {
  const translator = await Translator.load(async (name) => bytes(name), {
    plain: asked.plain,
  });
  const before = process.cpuUsage().user;
  const pairs = asked.pairs?.map((texts) => byTurns(translator, texts));
  const experiments = asked.experiments?.map(({ source, target, text, ...one }) => {
    const changed = made(one.change, translator.model);
    if (text !== undefined)
      return kept(write(translator, text, changed, asked.options));
    const { logits, maps } = run(translator.model, source, target, changed);
    const { encoder, decoder, cross } = maps;
    return { logits, encoder, decoder, cross };
  });
  const lists = experiments?.map((one) =>
    Object.fromEntries(Object.entries(one).map(([key, value]) => [key, listed(value)])),
  );
  const results = pairs ?? lists ?? asked.jobs.map((job) => {
    if (Array.isArray(job))
      return finish(translator.model.search(job, asked.options)).map(kept);
    const found = finish(translator.translate(job, asked.options));
    if (!asked.head && asked.layer === undefined) return kept(found);
    const [layer, head] = asked.head ?? [];
    const weigh = asked.head ? (step) => step[layer][head] : meanOfLayer(asked.layer);
    return { ...kept(found), ...translator.picture(job, found, weigh) };
  });
  const spent = (process.cpuUsage().user - before) / 1000; // milliseconds
  process.stdout.write(JSON.stringify(asked.timed ? { results, spent } : results));
}
