// The calculator: menus fill in a model and a device, and every number can be typed over.
// `engine` is the function that holds costs.js.

"use strict";

const { costs, power, short, size, time } = engine();

function begin(root) {
  root.dataset.ready = "yes";
  const data = root.querySelector("script[type='application/json']");
  const { models, devices } = JSON.parse(data.textContent);
  const one = (name) => root.querySelector(`[name="${name}"]`);
  const several = (kind) => [...root.querySelectorAll(`[data-of="${kind}"] input`)];
  const fields = { model: several("model"), device: several("device") };
  const says = root.querySelector(".tl-says");
  for (const field of root.querySelectorAll(":disabled")) field.disabled = false;
  says.setAttribute("aria-live", "polite");

  function fill(kind, found) {
    found.forEach((number, i) => (fields[kind][i].value = number));
  }

  function bar(name, parts, memory, all) {
    const row = root.querySelector(`[data-bar="${name}"]`);
    row.querySelectorAll("i").forEach((part, i) => {
      part.style.width = `${(100 * parts[i]) / all}%`;
    });
    row.querySelector("b").style.left = `${(100 * memory) / all}%`;
  }

  function show() {
    const inputs = [...root.querySelectorAll("input")];
    const wrong = inputs.filter((field) => !(field.valueAsNumber > 0));
    for (const field of inputs) field.ariaInvalid = String(wrong.includes(field));
    if (wrong.length) {
      says.textContent = "Every number has to be greater than zero.";
      return;
    }
    const read = (kind) => fields[kind].map((field) => field.valueAsNumber);
    const set = { bytes: Number(one("bytes").value) };
    for (const name of ["devices", "length", "rows"]) set[name] = one(name).valueAsNumber;
    set.utilisation = one("utilisation").valueAsNumber / 100;
    const found = costs(read("model"), read("device"), set);
    const { training, weights, cache, memory, step } = found;
    const put = (name, text) => (root.querySelector(`[data-out="${name}"]`).textContent = text);
    put("operations", power(found.operations));
    put("hours", `${short(found.deviceHours)} device-hours, or ${time(found.hours * 3600)}`);
    put("training", size(training));
    put("inference", `${size(weights)} + ${size(cache)}`);
    put("reading", time(found.reading));
    put("writing", `${short(set.rows / step)} tokens a second, limited by ${found.limit}`);
    const all = 1.05 * Math.max(training, weights + cache, memory);
    bar("training", [training / 8, training / 8, (3 * training) / 4], memory, all);
    bar("inference", [weights, cache], memory, all);
    const fits = (bytes) => (bytes <= memory ? "fits" : "doesn't fit");
    const both = `training ${fits(training)}, running ${fits(weights + cache)}`;
    says.textContent = `${size(memory)} of memory: ${both}.`;
  }

  root.addEventListener("change", ({ target }) => {
    if (target.name === "model") fill("model", models[target.value]);
    else if (target.name === "device") fill("device", devices[target.value]);
    else return;
    show();
  });
  root.addEventListener("input", ({ target }) => {
    const kind = target.closest("[data-of]")?.dataset.of;
    // a model of the reader's own
    if (kind && target.name !== "devices") one(kind).selectedIndex = -1;
    show();
  });
  show();
}

for (const root of document.querySelectorAll(".tl-costs:not([data-ready])")) begin(root);
