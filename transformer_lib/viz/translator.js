// Translators that compute in the page: a Transformer, and the recurrent ones before
// it. They read a folder of weights as the library saves it and need nothing else. A
// vector is a Float32Array, a sequence an array of vectors, and a linear map
// { weight, bias } has one row for each output.

import { oneLine, split } from "./known.js";
import { BYTES, cut, LETTERS } from "./pieces.js";
import { makeRoom, product } from "./product.js";

export const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];

// ---- numbers ----

function linear({ weight, bias }, x) {
  const fast = product({ weight, bias }, x); // the same sum by WebAssembly, if it can
  if (fast) return fast;
  const y = new Float32Array(weight.length / x.length);
  for (let row = 0, w = 0; row < y.length; row++) {
    let sum = bias ? bias[row] : 0;
    for (let i = 0; i < x.length; i++) sum += weight[w++] * x[i];
    y[row] = sum;
  }
  return y;
}

function add(x, y) {
  const z = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) z[i] = x[i] + y[i];
  return z;
}

// Each vector gets mean 0 and variance 1, then a learned scale and shift.
function layerNorm({ weight, bias }, x, eps) {
  const [y, n] = [new Float32Array(x.length), x.length];
  let [mean, variance] = [0, 0];
  for (let i = 0; i < n; i++) mean += x[i] / n;
  for (let i = 0; i < n; i++) variance += (x[i] - mean) ** 2 / n;
  const scale = 1 / Math.sqrt(variance + eps);
  for (let i = 0; i < n; i++) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  return y;
}

// The logarithm of the sum of the exponentials of some scores.
function logSum(scores) {
  let [largest, sum] = [-Infinity, 0];
  for (let i = 0; i < scores.length; i++) if (scores[i] > largest) largest = scores[i];
  for (let i = 0; i < scores.length; i++) sum += Math.exp(scores[i] - largest);
  return largest + Math.log(sum);
}

// Weights that add up to 1; all are zero if every score is -Infinity.
function softmax(scores) {
  const total = logSum(scores);
  return scores.map((score) => (score > -Infinity ? Math.exp(score - total) : 0));
}

const ACTIVATIONS = {
  relu: (value) => Math.max(value, 0),
  swish: (value) => value / (1 + Math.exp(-value)),
};

// ---- attention ----

// The rows of in_proj_weight make the queries of all heads, then keys, then values.
class Attention {
  constructor({ in_proj_weight, in_proj_bias, out_proj }, config) {
    const { d_model: D, n_heads: H } = config;
    const keys = H * (config.d_key ?? D / H);
    const rows = (first, last) => ({
      weight: in_proj_weight.subarray(first * D, last && last * D),
      bias: in_proj_bias?.subarray(first, last),
    });
    this.query = rows(0, keys);
    this.key = rows(keys, 2 * keys);
    this.value = rows(2 * keys);
    this.output = out_proj;
    this.heads = H;
  }

  // What can be attended to: a key and a value for each vector.
  read(vectors) {
    const { key, value } = this;
    return vectors.map((x) => ({ key: linear(key, x), value: linear(value, x) }));
  }

  // For each head: the softmax of query · key / √dK, and the values averaged by it. An
  // experiment may allow a head only some places, or silence it (kit.js).
  attend(x, seen, { allows, silent } = {}) {
    const query = linear(this.query, x);
    const [dK, dV] = [query, seen[0].value].map((one) => one.length / this.heads);
    const context = new Float32Array(dV * this.heads);
    const weights = [];
    for (let head = 0; head < this.heads; head++) {
      const scores = seen.map(({ key }, place) => {
        if (allows && !allows(head, place)) return -Infinity;
        let product = 0;
        for (let i = head * dK; i < (head + 1) * dK; i++) product += query[i] * key[i];
        return product / Math.sqrt(dK);
      });
      weights[head] = softmax(scores);
      if (silent?.(head)) continue; // its part of the context stays zero
      seen.forEach(({ value }, place) => {
        const weight = weights[head][place];
        for (let i = head * dV; i < (head + 1) * dV; i++) context[i] += weight * value[i];
      });
    }
    return { vector: linear(this.output, context), weights };
  }
}

// ---- the search ----

// A model has the library's two methods: `start` reads the source and gives a
// state, `step` reads one target token and gives the scores of the next, a new state,
// and what each layer and head attended to. A state is never changed, so that two
// hypotheses may continue one. Both take what an experiment changes (kit.js).
class Seq2Seq {
  constructor(config, tensors) {
    Object.assign(this, { config }, grow(tensors));
  }

  // Beam search; with a beam of one, greedy search. Yields the hypotheses after each
  // token and returns the finished ones, best first. The score is the log-probability
  // over ((5 + length) / 6) ** lengthPenalty.
  *search(source, options = {}) {
    const { beamSize = 1, lengthPenalty = 0.6 } = options;
    const { maxLength = 100, maxRatio = Infinity, lookahead = 8, change } = options;
    const ratio = Math.max(1, Math.floor(maxRatio * source.length));
    const limit = Math.min(maxLength, this.config.max_length ?? Infinity, ratio);
    const normalizer = (length) => ((5 + length) / 6) ** lengthPenalty;
    const state = this.start(source, change);
    let live = [{ tokens: [], logProbability: 0, cross: [], state }];
    let finished = [];
    for (let length = 1; length <= limit; length++) {
      const candidates = live.flatMap((one) => this.extend(one, 2 * beamSize, change));
      candidates.sort((a, b) => b.logProbability - a.logProbability);
      live = [];
      candidates.slice(0, 2 * beamSize).forEach((one, rank) => {
        const ends = one.tokens.at(-1) === EOS || length === limit;
        if (!ends && live.length < beamSize) live.push(one);
        if (!ends || rank >= beamSize) return;
        finished.push({ ...one, score: one.logProbability / normalizer(length) });
      });
      finished.sort((a, b) => b.score - a.score);
      finished.length = Math.min(finished.length, beamSize);
      yield { live, finished };
      // Done when no live hypothesis can still beat the best that is finished, at most
      // `lookahead` tokens later.
      const last = Math.min(limit, length + (lookahead ?? Infinity));
      const most = Math.max(normalizer(length + 1), normalizer(last));
      const bound = live.length ? live[0].logProbability / most : -Infinity;
      if (finished.length && (beamSize === 1 || finished[0].score >= bound)) break;
    }
    return finished;
  }

  // The likeliest continuations of a hypothesis by one token; never by PAD or BOS.
  extend({ tokens, logProbability, cross, state }, count, change) {
    const look = change?.at(tokens.length);
    const step = this.step(tokens.at(-1) ?? BOS, state, look);
    const total = logSum(step.logits);
    const scores = step.logits.fill(-Infinity, PAD, EOS);
    return largest(scores, count).map((token) => ({
      tokens: [...tokens, token],
      logProbability: logProbability + scores[token] - total,
      cross: [...cross, step.cross],
      state: step.state,
    }));
  }
}

// ---- the Transformer ----

class Transformer extends Seq2Seq {
  constructor(config, tensors) {
    super(config, tensors); // encoder, decoder, embeddings
    for (const layer of [...this.encoder.layers, ...this.decoder.layers]) {
      for (const part of ["self_attn", "cross_attn"]) {
        if (layer[part]) layer[part] = new Attention(layer[part], config);
      }
    }
    this.activation = ACTIVATIONS[config.activation];
    if (!this.activation) throw new Error(`no activation ${config.activation} here`);
  }

  // A token's vector, scaled, plus its positional encoding: pairs of sine and
  // cosine, slower from pair to pair, or a learned row.
  embed(embedding, learned, id, place) {
    const D = this.config.d_model;
    return embedding.weight.slice(id * D, (id + 1) * D).map((value, i) => {
      const angle = place / 10000 ** ((i - (i % 2)) / D);
      const wave = i % 2 ? Math.cos(angle) : Math.sin(angle);
      return value * Math.sqrt(D) + (learned ? learned.table[place * D + i] : wave);
    });
  }

  // x + sublayer(x), with the norm before the sublayer (pre-norm) or after the sum.
  residual(vectors, norm, sublayer) {
    const first = this.config.norm_first;
    const normed = (x) => layerNorm(norm, x, this.config.eps);
    const made = sublayer(first ? vectors.map(normed) : vectors);
    return vectors.map((x, i) => (first ? add(x, made[i]) : normed(add(x, made[i]))));
  }

  feedForward({ linear1, linear2 }, x) {
    return linear(linear2, linear(linear1, x).map(this.activation));
  }

  finish(stack, vectors) {
    if (!stack.norm) return vectors;
    return vectors.map((x) => layerNorm(stack.norm, x, this.config.eps));
  }

  // Reads the source: for each decoder layer the keys and values made of it, and an
  // empty cache for those of the target. Kept as well: the encoder's vectors, and what
  // each of its layers and heads attended to.
  start(ids, change) {
    const { source_embedding, source_positions } = this;
    let vectors = ids.map((id, i) =>
      this.embed(source_embedding, source_positions, id, i),
    );
    const maps = [];
    this.encoder.layers.forEach((layer, depth) => {
      vectors = change?.vectors(vectors, depth) ?? vectors;
      vectors = this.residual(vectors, layer.norm1, (given) => {
        const seen = layer.self_attn.read(given);
        const found = given.map((x, i) =>
          layer.self_attn.attend(x, seen, change?.at(i)("encoder", depth)),
        );
        maps[depth] = found.map(({ weights }) => weights);
        return found.map(({ vector }) => vector);
      });
      vectors = this.residual(vectors, layer.norm2, (given) =>
        given.map((x) => this.feedForward(layer.feed_forward, x)),
      );
    });
    vectors = this.finish(this.encoder, vectors);
    vectors = change?.vectors(vectors) ?? vectors;
    const { layers } = this.decoder;
    const memory = layers.map(({ cross_attn }) => cross_attn.read(vectors));
    return { memory, cache: layers.map(() => []), encoder: { maps, vectors } };
  }

  // Reads one target token. The cache holds keys and values of the tokens before,
  // layer by layer.
  step(id, { memory, cache, encoder }, look) {
    const { target_embedding, target_positions } = this;
    let vectors = [this.embed(target_embedding, target_positions, id, cache[0].length)];
    const [grown, cross, self] = [[], [], []];
    this.decoder.layers.forEach((layer, depth) => {
      vectors = this.residual(vectors, layer.norm1, ([x]) => {
        grown[depth] = [...cache[depth], ...layer.self_attn.read([x])];
        const given = look?.("decoder", depth);
        const { vector, weights } = layer.self_attn.attend(x, grown[depth], given);
        self[depth] = weights;
        return [vector];
      });
      vectors = this.residual(vectors, layer.norm2, ([x]) => {
        const given = look?.("cross", depth);
        const { vector, weights } = layer.cross_attn.attend(x, memory[depth], given);
        cross[depth] = weights;
        return [vector];
      });
      vectors = this.residual(vectors, layer.norm3, ([x]) => [
        this.feedForward(layer.feed_forward, x),
      ]);
    });
    const [x] = this.finish(this.decoder, vectors);
    const state = { memory, cache: grown, encoder };
    return { logits: linear(this.output, x), state, cross, self };
  }
}

// ---- recurrent translators ----

const sigmoid = (value) => 1 / (1 + Math.exp(-value));
const zeros = (size) => new Float32Array(size);
const row = ({ weight }, id, size) => weight.subarray(id * size, (id + 1) * size);
const tanh = (x) => x.map(Math.tanh);
const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);

function join(...vectors) {
  const all = zeros(vectors.reduce((sum, x) => sum + x.length, 0));
  let end = 0;
  for (const x of vectors) all.set(x, (end += x.length) - x.length);
  return all;
}

// Gated recurrent units: one layer in one direction.
class GRU {
  constructor(tensors, ending) {
    const map = (name) => ({
      weight: tensors[`weight_${name}_${ending}`],
      bias: tensors[`bias_${name}_${ending}`],
    });
    [this.input, this.hidden] = [map("ih"), map("hh")];
  }

  // The new state: a mix of n and the old one, of which the gate z keeps a share.
  step(x, h) {
    const [given, kept, H] = [linear(this.input, x), linear(this.hidden, h), h.length];
    return h.map((old, i) => {
      const r = sigmoid(given[i] + kept[i]);
      const z = sigmoid(given[H + i] + kept[H + i]);
      const n = Math.tanh(given[2 * H + i] + r * kept[2 * H + i]);
      return n + z * (old - n);
    });
  }

  // The state after each vector.
  run(vectors) {
    let h = zeros(this.hidden.bias.length / 3);
    return vectors.map((x) => (h = this.step(x, h)));
  }
}

// The layers of a GRU, each a list of one direction or two.
function gruLayers(tensors) {
  const found = [];
  for (let n = 0; tensors[`weight_ih_l${n}`]; n++) {
    const endings = [`l${n}`, `l${n}_reverse`];
    const there = endings.filter((ending) => tensors[`weight_ih_${ending}`]);
    found.push(there.map((ending) => new GRU(tensors, ending)));
  }
  return found;
}

class Recurrent extends Seq2Seq {
  constructor(config, tensors) {
    super(config, tensors);
    this.encoder.layers = gruLayers(this.encoder.gru);
    this.layers = gruLayers(this.gru).flat();
  }

  // The states of the top layer at each token, and the last states of each layer,
  // one for each direction. The second direction reads from the end.
  encode(ids, change) {
    const { d_model: D, reverse_source: reverse } = this.config;
    const order = reverse ? ids.toReversed() : ids;
    let vectors = order.map((id) => row(this.encoder.embedding, id, D));
    const last = [];
    for (const [forward, backward] of this.encoder.layers) {
      const ways = [forward.run(vectors)];
      if (backward) ways.push(backward.run(vectors.toReversed()).toReversed());
      last.push([ways[0].at(-1), ways[1]?.[0]]);
      vectors = vectors.map((_, place) => join(...ways.map((way) => way[place])));
    }
    return { outputs: change?.vectors(vectors) ?? vectors, last };
  }

  // The state of each decoder layer after one more vector.
  advance(x, hidden) {
    return this.layers.map((gru, depth) => (x = gru.step(x, hidden[depth])));
  }

  // The keys: U k in additive attention, k in a dot product, W k with a matrix.
  prepare(outputs) {
    const { score } = this.attention ?? {};
    return score?.key ? outputs.map((k) => linear(score.key, k)) : outputs;
  }

  // The softmax of v · tanh(W q + U k) or of q · k, and the states averaged by it.
  attend(query, { outputs, keys }, { allows, silent } = {}) {
    const { score } = this.attention ?? {};
    const q = score?.query ? linear(score.query, query) : query;
    const scores = keys.map((key, place) => {
      if (allows && !allows(0, place)) return -Infinity;
      return score?.combine ? dot(score.combine.weight, tanh(add(q, key))) : dot(q, key);
    });
    const weights = softmax(scores);
    if (silent?.(0)) return { context: zeros(outputs[0].length), weights };
    const context = zeros(outputs[0].length).map((_, i) =>
      outputs.reduce((sum, x, place) => sum + weights[place] * x[i], 0),
    );
    return { context, weights };
  }
}

// 2014: the decoder sees only the encoder's last state.
class OneVector extends Recurrent {
  start(ids) {
    const hidden = this.encode(ids).last.map((ways) => join(...ways.filter(Boolean)));
    return { vector: hidden.at(-1), hidden };
  }

  step(id, { vector, hidden }) {
    const word = row(this.embedding, id, this.config.d_model);
    const state = { vector, hidden: this.advance(join(word, vector), hidden) };
    const x = tanh(linear(this.read_out, join(word, state.hidden.at(-1), vector)));
    return { logits: linear(this.output, x), state, cross: [] };
  }
}

// Bahdanau: the decoder attends with its old state, then takes its step.
class Bahdanau extends Recurrent {
  start(ids, change) {
    const { outputs, last } = this.encode(ids, change);
    const hidden = last.map(([, backward]) => tanh(linear(this.bridge, backward)));
    return { memory: { outputs, keys: this.prepare(outputs) }, hidden };
  }

  step(id, { memory, hidden }, look) {
    const word = row(this.embedding, id, this.config.d_model);
    const given = look?.("cross", 0);
    const { context, weights } = this.attend(hidden.at(-1), memory, given);
    const state = { memory, hidden: this.advance(join(word, context), hidden) };
    const x = tanh(linear(this.read_out, join(word, state.hidden.at(-1), context)));
    return { logits: linear(this.output, x), state, cross: [[weights]] };
  }
}

// Luong: the decoder takes its step, then attends; the next step reads the outcome.
class Luong extends Recurrent {
  constructor(config, tensors) {
    super(config, tensors);
    if (config.local || config.score === "location")
      throw new Error("no attention to windows or locations here");
  }

  start(ids, change) {
    const { outputs, last } = this.encode(ids, change);
    const hidden = last.map((ways) => join(...ways));
    const feed = zeros(this.config.input_feeding ? this.config.d_model : 0);
    return { memory: { outputs, keys: this.prepare(outputs) }, hidden, feed };
  }

  step(id, { memory, hidden: old, feed }, look) {
    const word = row(this.embedding, id, this.config.d_model);
    const hidden = this.advance(join(word, feed), old);
    const given = look?.("cross", 0);
    const { context, weights } = this.attend(hidden.at(-1), memory, given);
    const x = tanh(linear(this.attentional, join(context, hidden.at(-1))));
    const state = { memory, hidden, feed: feed.length ? x : feed };
    return { logits: linear(this.output, x), state, cross: [[weights]] };
  }
}

const MODELS = {
  transformer: Transformer,
  gru: OneVector,
  bahdanau: Bahdanau,
  luong: Luong,
};

// ---- small tools ----

// Where the largest few values stand, the largest first.
function largest(values, count) {
  const best = [];
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (best.length === count && value <= values[best[count - 1]]) continue;
    let place = best.length;
    while (place > 0 && values[best[place - 1]] < value) place--;
    best.splice(place, 0, index);
    best.length = Math.min(best.length, count);
  }
  return best;
}

// { "a.0.b": tensor } becomes { a: [{ b: tensor }] }.
function grow(tensors) {
  const root = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    const path = name.split(".");
    let node = root;
    path.slice(0, -1).forEach((key, i) => {
      node = node[key] ??= /^\d+$/.test(path[i + 1]) ? [] : {};
    });
    node[path.at(-1)] = tensor;
  }
  return root;
}

// ---- text to tokens and back ----

// Several words in nothing but capitals, as sentences in lower case.
const FIRST = /(^|[.!?…] )([\p{L}\p{Nl}\p{No}])/gu;
const withoutCapitals = (text) =>
  text.includes(" ") && /\p{Uppercase}/u.test(text) && !/\p{Lowercase}|\p{Lt}/u.test(text)
    ? text.toLowerCase().replace(FIRST, (_, stop, first) => stop + first.toUpperCase())
    : text;

export class Tokenizer {
  constructor({ level, pieces, merges }) {
    Object.assign(this, { level, pieces });
    this.ids = new Map(pieces.map((piece, i) => [piece, i + 4]));
    this.rank = new Map(merges.map((pair, i) => [pair.join(" "), i]));
  }

  encode(text) {
    if (this.level === "word")
      return split(oneLine(text)).map((word) => this.ids.get(word) ?? UNK);
    return cut(text, this.rank).map((piece) => this.ids.get(piece));
  }

  // The places of the tokens of each word. A comma, and a piece that does not begin
  // with a space, belong to the word before.
  words(ids) {
    const groups = [];
    ids.forEach((id, place) => {
      const piece = this.pieces[id - 4];
      const joins =
        this.level === "word" ? piece === "," : piece && piece[0] !== LETTERS[32];
      if (joins && groups.length) groups.at(-1).push(place);
      else groups.push([place]);
    });
    return groups;
  }

  decode(ids) {
    const end = ids.indexOf(EOS);
    const kept = (end < 0 ? ids : ids.slice(0, end)).filter((id) => id > EOS);
    const words = kept.map((id) => (id === UNK ? "⟨unk⟩" : this.pieces[id - 4]));
    if (this.level === "word") return words.join(" ");
    const bytes = words.flatMap((word) =>
      word === "⟨unk⟩"
        ? [...new TextEncoder().encode(word)]
        : [...word].map((l) => BYTES.get(l)),
    );
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(new Uint8Array(bytes)).replace(/^ /, "");
  }
}

// ---- a folder of weights ----

// The value of each of the 65,536 half-precision numbers.
const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const [sign, exponent, fraction] = [bits >> 15, (bits >> 10) & 31, bits & 1023];
  const size = exponent
    ? 2 ** (exponent - 15) * (1 + fraction / 1024)
    : fraction / 2 ** 24;
  return sign ? -size : size;
});

const KINDS = { F16: Uint16Array, F32: Float32Array, I8: Int8Array };

// A safetensors file: the length of a header, the header as JSON, the numbers.
export function readTensors(buffer, { plain } = {}) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(new Uint8Array(buffer, 8, length));
  const { __metadata__: notes, ...entries } = JSON.parse(text);
  const tensors = {};
  const scales = (name) => entries[name.replace(/_scale$/, "")]?.dtype === "I8";
  const names = Object.keys(entries).filter(
    (name) => !(name.endsWith("_scale") && scales(name)),
  );
  const room = makeRoom(
    names.map((name) => entries[name].shape),
    plain,
  );
  const values = (name) => {
    const { dtype, data_offsets } = entries[name];
    const [first, last] = data_offsets.map((offset) => 8 + length + offset);
    if (!KINDS[dtype]) throw new Error(`${name} is ${dtype}, expected F16, F32 or I8`);
    return new KINDS[dtype](buffer.slice(first, last));
  };
  for (const name of names) {
    const numbers = values(name);
    const tensor = room(numbers.length);
    if (numbers instanceof Float32Array) tensor.set(numbers);
    else if (numbers instanceof Uint16Array)
      for (let i = 0; i < tensor.length; i++) tensor[i] = HALVES[numbers[i]];
    else {
      const rows = values(`${name}_scale`); // what a step of each row is worth
      const width = tensor.length / rows.length;
      for (let i = 0; i < tensor.length; i++)
        tensor[i] = numbers[i] * rows[Math.floor(i / width)];
    }
    tensors[name] = tensor;
  }
  // Tied weights are stored only once.
  const { aliases } = JSON.parse(notes?.text ?? "{}");
  for (const [name, same] of Object.entries(aliases ?? {}))
    if (tensors[same]) tensors[name] = tensors[same];
  return tensors;
}

// The mean over the heads of a layer; a negative one is counted from the end.
export const meanOfLayer = (layer) => (step) => {
  const heads = step.at(layer);
  return heads[0].map(
    (_, s) => heads.reduce((sum, head) => sum + head[s], 0) / heads.length,
  );
};

// The searches that the page has.
const USUAL = { min_length: 0, repetition_penalty: 1, normalization: "wu" };

export class Translator {
  constructor({ model, text, decoding }, source, target, tensors) {
    this.kind = text.kind;
    this.capitals = text.capitals;
    this.decoding = { beam_size: 5, ...decoding }; // how the model is best searched
    for (const [name, usual] of Object.entries(USUAL))
      if ((this.decoding[name] ?? usual) !== usual)
        throw new Error(`no search with ${name} ${this.decoding[name]} here`);
    this.source = new Tokenizer(source);
    this.target = new Tokenizer(target);
    if (!MODELS[model.name]) throw new Error(`no model ${model.name} here`);
    const { pad, bos, eos } = model.config.special ?? { pad: PAD, bos: BOS, eos: [EOS] };
    if (pad !== PAD || bos !== BOS || String(eos) !== String(EOS))
      throw new Error("no model with other special ids here");
    this.model = new MODELS[model.name](model.config, tensors);
  }

  // `read` gives a file of the folder, by its name, as an ArrayBuffer; with `plain`, no
  // WebAssembly is used.
  static async load(read, options) {
    const parse = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
    const config = await parse("config.json");
    const { source, target } = config.tokenizers;
    const parts = [parse(source), parse(target), read("weights.safetensors")];
    const [one, other, weights] = await Promise.all(parts);
    return new Translator(config, one, other, readTensors(weights, options));
  }

  // The text as the model wants it: a line of nothing but capitals is read in lower case,
  // and captions have no capitals and no full stop.
  prepare(typed) {
    const text =
      this.capitals === "keep" ? oneLine(typed) : withoutCapitals(oneLine(typed));
    if (this.kind !== "captions") return text;
    const body = text.replace(/[.!?…\p{White_Space}\x1c-\x1f]+$/u, "");
    const strange = (word) => {
      const ids = this.source.encode(word);
      return (ids.includes(UNK) ? 1000 : 0) + ids.length; // unknown, or in more pieces
    };
    const words = split(body.replaceAll(",", " , ")).map((word) => {
      const lower = word.toLowerCase();
      return strange(lower) < strange(word) ? lower : word;
    });
    return words.join(" ");
  }

  // What the model wrote, as people write it; it ends when the sentence is whole.
  restore(written, typed, prepared, whole) {
    const text = oneLine(typed);
    if (this.kind !== "captions" || text === prepared) return written;
    const [end] = text.match(/[.!?…\p{White_Space}\x1c-\x1f]*$/u);
    const [first = ""] = written;
    const capital = /^\p{Uppercase}/u.test(text) ? first.toUpperCase() : first;
    const sentence = capital + written.slice(first.length);
    return sentence.replaceAll(" ,", ",") + (whole ? end.trim() : "");
  }

  // Yields the text so far after every token, and returns the translation: its tokens,
  // its text, its score, and what it attended to.
  *translate(text, options) {
    const prepared = this.prepare(text);
    if (!prepared) return { text: "", source: [], tokens: [], cross: [], score: 0 };
    const source = [...this.source.encode(prepared), EOS];
    const limit = this.model.config.max_length;
    if (source.length > limit) throw new Error(`more than ${limit} tokens: split it`);
    const shown = (one, whole) => {
      const written = oneLine(this.target.decode(one.tokens));
      return { ...one, source, text: this.restore(written, text, prepared, whole) };
    };
    const { length_penalty, max_ratio, lookahead, max_length } = this.decoding;
    const own = {
      lengthPenalty: length_penalty,
      maxRatio: max_ratio ?? Infinity,
      lookahead,
      maxLength: max_length,
    };
    const search = this.model.search(source, { ...own, ...options });
    for (;;) {
      const { value, done } = search.next();
      if (done) return shown(value[0], true);
      yield shown(value.live[0] ?? value.finished[0], false);
    }
  }

  // Everything needed for the drawing: the words of both sentences, and how much each target
  // word attended to each source word and to the end of the sentence. `weigh` picks
  // or mixes the attention of all layers and heads; a model may have none.
  picture(text, { source, tokens, cross, text: written }, weigh) {
    const target = tokens.filter((id) => id !== EOS);
    const label = (side, ids, places, sentence) => {
      const words = split(oneLine(sentence));
      if (words.length === places.length) return words;
      return places.map((place) => side.decode(place.map((i) => ids[i])));
    };
    const [seen, made] = [
      this.source.words(source.slice(0, -1)),
      this.target.words(target),
    ];
    const places = [...seen, [source.length - 1]];
    const total = (row, place) => place.reduce((sum, i) => sum + row[i], 0);
    return {
      source: label(this.source, source, seen, text),
      target: label(this.target, target, made, written),
      weights: made.map((steps) => {
        if (!cross[0].length) return [];
        const rows = steps.map((step) => weigh(cross[step]));
        const mean = (place) => rows.reduce((sum, row) => sum + total(row, place), 0);
        return places.map((place) => mean(place) / rows.length);
      }),
    };
  }
}
