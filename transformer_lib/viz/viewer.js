// Every viewer of the book. A viewer is a scene with empty places, its controls, and for each
// setting of the controls what stands in those places: a text, or a number that the style turns
// into light, length or an angle. All of it comes as JSON from Python; this script looks it up.
(() => {
  "use strict";

  // The functions below tell where a control stands among its first `count` options.

  function radios(box, name) {
    const all = [...box.querySelectorAll("input")];
    box.disabled = false;
    for (const one of all) one.name = name;
    return (count) => {
      all.forEach((one, i) => (one.parentElement.hidden = i >= count));
      if (all.findIndex((one) => one.checked) >= count) all[count - 1].checked = true;
      return all.findIndex((one) => one.checked);
    };
  }

  function slider(box) {
    const range = box.querySelector("input");
    const shown = box.querySelector("span");
    const { name, first, begin } = box.dataset;
    range.value = begin;
    box.querySelectorAll("button").forEach((button, i) => {
      button.addEventListener("click", () => {
        range.value = Number(range.value) + (i ? 1 : -1);
        range.dispatchEvent(new Event("input", { bubbles: true }));
      });
    });
    return (count) => {
      range.max = count - 1;
      const text = `${name} ${Number(first) + Number(range.value)}`;
      range.setAttribute("aria-valuetext", text);
      shown.textContent = text;
      return Number(range.value);
    };
  }

  function menu(box) {
    const select = box.querySelector("select");
    select.disabled = false;
    return (count) => {
      [...select.options].forEach((one, i) => (one.hidden = one.disabled = i >= count));
      select.selectedIndex = Math.min(select.selectedIndex, count - 1);
      return select.selectedIndex;
    };
  }

  const kinds = { FIELDSET: radios, P: slider, LABEL: menu };
  const textOf = (place) => (place?.querySelector("b") ?? place)?.textContent ?? "";

  // The word that is chosen, and the three that weigh most.
  function most(root, places, weights) {
    const best = weights
      .map((weight, i) => [weight, textOf(places[i])])
      .filter(([weight, text]) => weight > 0 && text)
      .sort((a, b) => b[0] - a[0])
      .slice(0, 3)
      .map(([weight, text]) => `${text} ${weight}\u00a0%`);
    const chosen = textOf(root.querySelector(".tl-words input:checked + span"));
    return `${chosen}: ${best.join(", ") || "no word"}.`;
  }

  function begin(root, number) {
    root.dataset.ready = "yes";
    const data = root.querySelector("script[type='application/json']");
    const parts = JSON.parse(data.textContent);
    const says = root.querySelector(".tl-says");
    const controls = [...root.querySelectorAll("[data-control]")].sort(
      (a, b) => a.dataset.control - b.dataset.control,
    );
    const at = controls.map((box, k) => kinds[box.tagName](box, `tl-${number}-${k}`));
    const places = parts.map((_, p) => [...root.querySelectorAll(`[data-part="${p}"]`)]);

    function show() {
      const told = parts.map(({ uses, table, weights }, p) => {
        const row = uses.reduce((rows, k) => rows[at[k](rows.length)], table);
        const values = weights ? row : row.slice(1);
        values.forEach((value, i) => {
          const place = places[p][i];
          if (typeof value === "string") place.textContent = value;
          else place.style.setProperty("--tl-value", value);
        });
        return weights ? most(root, places[p], values) : row[0];
      });
      says.textContent = told.filter(Boolean).join(" ");
    }

    root.addEventListener("input", show);
    root.addEventListener("keydown", (event) => event.stopPropagation()); // the page would turn
    show();
    says.setAttribute("aria-live", "polite"); // from now on, changes are read out
  }

  const ready = document.querySelectorAll(".tl-viewer[data-ready]").length;
  document
    .querySelectorAll(".tl-viewer:not([data-ready])")
    .forEach((root, i) => begin(root, ready + i));
})();
