// One layer of attention that learns a task in the page: its gradients by hand, and Adam. The same
// settings and seed give the same losses as PyTorch, up to rounding.

const [V, T, D, B] = [8, 8, 16, 32]; // letters, places, width, sequences in a batch

// What stands at each place of the answer.
export const TASKS = {
  reverse: (letters) => letters.slice().reverse(),
  shift: (letters) => letters.map((_, i) => letters[(i + 1) % T]),
  copy: (letters) => letters.slice(),
  sort: (letters) => letters.slice().sort((a, b) => a - b),
  find: (letters) => letters.map(() => Math.max(...letters)),
};

// Numbers from 0 to 1, always the same.
export function* uniform(seed) {
  for (;;) {
    seed = (1664525 * seed + 1013904223) % 2 ** 32;
    yield seed / 2 ** 32;
  }
}

const zeros = (size) => new Float32Array(size);

// out = a b, out += aᵀ b, out += a bᵀ; a has n rows and k columns.
function times(a, b, n, k, m, out) {
  for (let i = 0; i < n; i++)
    for (let j = 0; j < m; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++) sum += a[i * k + l] * b[l * m + j];
      out[i * m + j] = sum;
    }
}
function addLeft(a, b, n, k, m, out) {
  for (let i = 0; i < n; i++)
    for (let l = 0; l < k; l++)
      for (let j = 0; j < m; j++) out[l * m + j] += a[i * k + l] * b[i * m + j];
}
function addRight(a, b, n, k, m, out) {
  for (let i = 0; i < n; i++)
    for (let l = 0; l < m; l++) {
      let sum = 0;
      for (let j = 0; j < k; j++) sum += a[i * k + j] * b[l * k + j];
      out[i * m + l] += sum;
    }
}

function softmax(row) {
  const most = Math.max(...row);
  let sum = 0;
  for (let j = 0; j < row.length; j++) sum += row[j] = Math.exp(row[j] - most);
  for (let j = 0; j < row.length; j++) row[j] /= sum;
}

// A layer that learns: `step` takes a batch and gives loss and share of right letters; `show`
// gives weights and answers for some letters.
export function learner({
  task = "reverse",
  positions = true,
  root = true,
  heads = 1,
  rate = 0.01,
  seed = 1,
}) {
  const numbers = uniform(seed);
  const next = () => numbers.next().value;
  const normal = () =>
    Math.sqrt(-2 * Math.log(next() + 1e-12)) * Math.cos(2 * Math.PI * next());
  const parameter = (size, scale) => {
    const w = zeros(size).map(() => scale * normal());
    return { w, g: zeros(size), m: zeros(size), v: zeros(size) };
  };
  const [letters, places] = [parameter(V * D, 1), parameter(T * D, 1)];
  const [query, key, value] = [D, D, D].map((size) => parameter(size * D, 0.25));
  const output = parameter(D * V, 0.25);
  const all = [letters, places, query, key, value, output];
  const [x, q, k, v, context] = [1, 1, 1, 1, 1].map(() => zeros(T * D));
  const [weights, logits] = [zeros(heads * T * T), zeros(T * V)];
  const d = D / heads;
  const scale = root ? 1 / Math.sqrt(d) : 1;
  let steps = 0;

  // The columns of one head, as a matrix of its own, and back.
  const part = (full, head) => {
    const own = zeros(T * d);
    for (let i = 0; i < T; i++)
      own.set(full.subarray(i * D + head * d, i * D + (head + 1) * d), i * d);
    return own;
  };
  const put = (own, full, head) => {
    for (let i = 0; i < T; i++)
      full.set(own.subarray(i * d, (i + 1) * d), i * D + head * d);
  };

  function forward(source) {
    for (let i = 0; i < T; i++)
      for (let n = 0; n < D; n++)
        x[i * D + n] =
          letters.w[source[i] * D + n] + (positions ? places.w[i * D + n] : 0);
    times(x, query.w, T, D, D, q);
    times(x, key.w, T, D, D, k);
    times(x, value.w, T, D, D, v);
    for (let head = 0; head < heads; head++) {
      const [own, keys, values] = [q, k, v].map((full) => part(full, head));
      const map = weights.subarray(head * T * T, (head + 1) * T * T);
      map.fill(0);
      addRight(own, keys, T, d, T, map);
      for (let i = 0; i < map.length; i++) map[i] *= scale;
      for (let i = 0; i < T; i++) softmax(map.subarray(i * T, (i + 1) * T));
      times(map, values, T, T, d, own);
      put(own, context, head);
    }
    times(context, output.w, T, D, V, logits);
    for (let i = 0; i < T; i++) softmax(logits.subarray(i * V, (i + 1) * V));
  }

  // From the gradient of the logits to those of all parameters.
  function backward(source, dLogits) {
    addLeft(context, dLogits, T, D, V, output.g);
    const [dContext, dq, dk, dv, dx] = [1, 1, 1, 1, 1].map(() => zeros(T * D));
    addRight(dLogits, output.w, T, V, D, dContext);
    for (let head = 0; head < heads; head++) {
      const [own, keys, values, dOwn] = [q, k, v, dContext].map((full) =>
        part(full, head),
      );
      const map = weights.subarray(head * T * T, (head + 1) * T * T);
      const [dMap, dKeys, dValues] = [zeros(T * T), zeros(T * d), zeros(T * d)];
      addRight(dOwn, values, T, d, T, dMap);
      addLeft(map, dOwn, T, T, d, dValues);
      for (let i = 0; i < T; i++) {
        let sum = 0;
        for (let j = 0; j < T; j++) sum += map[i * T + j] * dMap[i * T + j];
        for (let j = 0; j < T; j++)
          dMap[i * T + j] = map[i * T + j] * (dMap[i * T + j] - sum) * scale;
      }
      times(dMap, keys, T, T, d, dOwn);
      addLeft(dMap, own, T, T, d, dKeys);
      put(dOwn, dq, head);
      put(dKeys, dk, head);
      put(dValues, dv, head);
    }
    for (const [from, matrix] of [
      [dq, query],
      [dk, key],
      [dv, value],
    ]) {
      addLeft(x, from, T, D, D, matrix.g);
      addRight(from, matrix.w, T, D, D, dx);
    }
    for (let i = 0; i < T; i++)
      for (let n = 0; n < D; n++) {
        letters.g[source[i] * D + n] += dx[i * D + n];
        if (positions) places.g[i * D + n] += dx[i * D + n];
      }
  }

  function step() {
    let [loss, right] = [0, 0];
    for (const { g } of all) g.fill(0);
    for (let b = 0; b < B; b++) {
      const source = Array.from({ length: T }, () => Math.floor(V * next()));
      const target = TASKS[task](source);
      forward(source);
      const dLogits = logits.map((p) => p / (B * T));
      for (let i = 0; i < T; i++) {
        const row = logits.subarray(i * V, (i + 1) * V);
        loss -= Math.log(row[target[i]]) / (B * T);
        right += row.indexOf(Math.max(...row)) === target[i];
        dLogits[i * V + target[i]] -= 1 / (B * T);
      }
      backward(source, dLogits);
    }
    steps++;
    for (const { w, g, m, v } of all)
      for (let i = 0; i < w.length; i++) {
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.98 * v[i] + 0.02 * g[i] ** 2;
        const mean = m[i] / (1 - 0.9 ** steps);
        w[i] -= (rate * mean) / (Math.sqrt(v[i] / (1 - 0.98 ** steps)) + 1e-8);
      }
    return { step: steps, loss, right: right / (B * T) };
  }

  function show(source) {
    forward(source);
    const answers = source.map((_, i) => {
      const row = logits.subarray(i * V, (i + 1) * V);
      return row.indexOf(Math.max(...row));
    });
    return { weights: [...weights], answers };
  }
  return { step, show };
}
