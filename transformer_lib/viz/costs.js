// What a model costs: the formulas of the chapter, in its units (billions of parameters and
// tokens, TB and TFLOPs a second).

// Everything that is shown of a model on some devices of a kind, with what a reader has set.
export function costs(model, device, set) {
  const [parameters, used, layers, kept, tokens] = model.map(
    (number, i) => number * [1e9, 1e9, 1, 1, 1e9][i],
  );
  const [peak, bandwidth, memory] = device.map(
    (number, i) => number * [1e12, 1e12, 1e9][i] * set.devices,
  );
  const operations = 6 * used * tokens;
  const seconds = operations / (peak * set.utilisation);
  const weights = parameters * set.bytes;
  const cache = 2 * layers * kept * set.length * set.rows;
  const moved = Math.min(parameters, used * set.rows) * set.bytes + cache;
  const arithmetic = (2 * used * set.rows) / peak;
  return {
    operations,
    hours: seconds / 3600,
    deviceHours: (seconds / 3600) * set.devices,
    training: 16 * parameters,
    weights,
    cache,
    memory,
    reading: (2 * used * set.length * set.rows) / (peak * set.utilisation),
    step: Math.max(moved / bandwidth, arithmetic),
    limit: moved / bandwidth >= arithmetic ? "memory" : "arithmetic",
  };
}

const RAISED = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].entries()) };
const UNITS = ["", " thousand", " million", " billion", " trillion"];

// Three digits and a unit, such as 30.8 million.
export function short(number, units = UNITS, step = 1000) {
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) [number, unit] = [number / step, unit + 1];
  const whole = Math.round(number).toLocaleString("en");
  const shown = number < 999.5 ? Number(number.toPrecision(3)) : whole;
  return `${shown}${units[unit]}`;
}

export const size = (bytes) => short(bytes / 1e6, [" MB", " GB", " TB", " PB"]);

// A time in the largest unit that it fills.
export function time(seconds) {
  const units = Object.entries({
    years: 31557600,
    days: 86400,
    hours: 3600,
    minutes: 60,
    seconds: 1,
  });
  const [name, length] = units.find(([, one]) => seconds >= one) ?? ["milliseconds", 0.001];
  const told = short(seconds / length);
  return `${told} ${told === "1" ? name.slice(0, -1) : name}`;
}

export function power(number) {
  const [digits, exponent] = number.toExponential(1).split("e");
  return `${digits} · 10${[...String(Number(exponent))].map((sign) => RAISED[sign]).join("")}`;
}
