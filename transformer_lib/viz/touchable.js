// A figure to touch. Python drew a frame for every setting of the controls; the page shows one.
// What differs between frames is a column of whole numbers, kept for those controls that it depends
// on. A mark is an attribute (or the text) of an element, as templates whose ~ stand for columns.
(() => {
  "use strict";
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const RING = '<g class="touch-handle"><circle r="26"/><circle r="11" class="touch-ring"/></g>';

  // Whole numbers from letters: base64 digits of five bits, each number the step from the last.
  function numbersOf(letters) {
    const numbers = [];
    let [last, rest, shift] = [0, 0, 0];
    for (const letter of letters) {
      const digit = DIGITS.indexOf(letter);
      rest += (digit & 31) << shift;
      shift += 5;
      if (digit < 32) {
        last += rest & 1 ? -(rest >> 1) : rest >> 1;
        numbers.push(last);
        [rest, shift] = [0, 0];
      }
    }
    return numbers;
  }

  function begin(root) {
    root.dataset.ready = "yes";
    const text = root.querySelector("script[type='application/json']").textContent;
    const { labels, at, marks, said, handle, drag, columns } = JSON.parse(text);
    const svg = root.querySelector("svg");
    const says = root.querySelector(".touch-said");
    const boxes = [...root.querySelectorAll("[data-control]")];
    const places = [];
    for (const one of svg.querySelectorAll("[data-touch]")) {
      for (const mark of one.dataset.touch.split(" ")) places[mark] = one;
    }
    const decoded = columns.map(([uses, decimals, letters]) => [
      uses,
      decimals,
      numbersOf(letters),
    ]);

    function numberAt(column, setting) {
      const [uses, , numbers] = decoded[column];
      return numbers[uses.reduce((sum, k) => sum * labels[k].length + setting[k], 0)];
    }
    function writtenAt(column, setting) {
      const decimals = decoded[column][1];
      const places = decimals < 0 ? ~decimals : decimals;
      const number = numberAt(column, setting) / 10 ** places;
      return decimals < 0 ? String(number) : number.toFixed(places);
    }
    function textAt(templates, setting = at) {
      const choice = templates.at(-1);
      const chosen = typeof choice === "number" ? templates[numberAt(choice, setting)] : choice;
      const [form, ...used] = chosen;
      let next = 0;
      return used.length ? form.replace(/~/g, () => writtenAt(used[next++], setting)) : form;
    }

    function show() {
      marks.forEach(([name, ...templates], i) => {
        const value = textAt(templates);
        if (name === "text") places[i].textContent = value;
        else if (value) places[i].setAttribute(name, value);
        else places[i].removeAttribute(name);
      });
      says.textContent = textAt(said);
      boxes.forEach((box, k) => {
        const shown = box.querySelector("output");
        if (shown) shown.textContent = labels[k][at[k]];
        const range = box.querySelector("input[type=range]");
        if (!range) return;
        range.setAttribute("aria-valuetext", labels[k][at[k]]);
        range.value = at[k];
      });
      if (drag.length) {
        const [x, y] = handle.map((column) => numberAt(column, at) / 10);
        ring.setAttribute("transform", `translate(${x} ${y})`);
      }
    }
    function set(k, index) {
      at[k] = Math.min(Math.max(index, 0), labels[k].length - 1);
      show();
    }

    // Controls: sliders, buttons, and a button that plays a slider from here to its end.
    let playing = null;
    function pause() {
      clearInterval(playing?.timer);
      playing?.button.setAttribute("aria-pressed", "false");
      playing = null;
      says.setAttribute("aria-live", "polite");
    }
    function play(k, button) {
      const last = labels[k].length - 1;
      if (at[k] === last) set(k, 0);
      button.setAttribute("aria-pressed", "true");
      says.setAttribute("aria-live", "off"); // or every step would be read out
      const step = () => {
        set(k, at[k] + 1);
        if (at[k] === last) pause();
      };
      playing = { button, timer: setInterval(step, Math.min(Math.max(4000 / last, 80), 600)) };
    }
    const group = `touch-${Math.random().toString(36).slice(2)}`;
    boxes.forEach((box, k) => {
      for (const one of box.querySelectorAll("[type=radio]")) {
        one.name = `${group}-${k}`;
        one.checked = Number(one.value) === at[k];
      }
      box.addEventListener("input", ({ target }) => {
        pause();
        set(k, Number(target.value));
      });
      const button = box.querySelector("button");
      button?.addEventListener("click", () => {
        const again = playing?.button !== button;
        pause();
        if (again) play(k, button);
      });
    });
    root.addEventListener("keydown", (event) => event.stopPropagation()); // the page would turn

    // A handle in the plane: two sliders that are not seen, and a ring that is.
    if (drag.length) svg.insertAdjacentHTML("beforeend", RING);
    const ring = svg.querySelector(".touch-handle");
    function nearest(k, column, wanted) {
      const far = (i) =>
        Math.abs(numberAt(column, at.map((index, one) => (one === k ? i : index))) / 10 - wanted);
      return labels[k].reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
    }
    function pull(event) {
      const point = new DOMPoint(event.clientX, event.clientY);
      const { x, y } = point.matrixTransform(svg.getScreenCTM().inverse());
      const found = at.slice();
      found[drag[0]] = nearest(drag[0], handle[0], x);
      found[drag[1]] = nearest(drag[1], handle[1], y);
      const [left, top] = handle.map((column) => numberAt(column, found) / 10);
      if (event.type === "click" && Math.hypot(x - left, y - top) > 40) return; // not in the plane
      pause();
      drag.forEach((k) => (at[k] = found[k]));
      show();
    }
    if (ring) {
      ring.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        boxes[drag[0]].querySelector("input").focus({ preventScroll: true, focusVisible: false });
        ring.setPointerCapture(event.pointerId);
        ring.onpointermove = pull;
      });
      for (const end of ["pointerup", "pointercancel"]) {
        ring.addEventListener(end, () => (ring.onpointermove = null));
      }
      svg.addEventListener("click", pull);
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 1], ArrowDown: [1, -1] };
      for (const k of drag) {
        boxes[k].addEventListener("keydown", (event) => {
          if (!steps[event.key]) return;
          event.preventDefault();
          const [which, step] = steps[event.key];
          boxes[drag[which]].querySelector("input").focus();
          set(drag[which], at[drag[which]] + step);
        });
      }
    }

    // Every sentence stands unseen behind the one that is seen, so that the tallest fits.
    const unseen = new Set();
    const gather = (...setting) =>
      setting.length < labels.length
        ? labels[setting.length].forEach((_, i) => gather(...setting, i))
        : unseen.add(textAt(said, setting).replace(/\d/g, "0"));
    gather();
    for (const one of unseen) {
      says.before(says.previousSibling.cloneNode());
      says.previousSibling.append(one);
    }

    // Labels keep nine pixels where the figure is narrow.
    const sizeOf = (one) => parseFloat(one.getAttribute("font-size") ?? 1);
    const smallest = Math.min(1, ...[...svg.querySelectorAll("text")].map(sizeOf));
    const fit = () => {
      const wide = svg.clientWidth / svg.viewBox.baseVal.width;
      svg.setAttribute("font-size", wide ? Math.max(11, 9.2 / wide / smallest) : 11);
    };
    new ResizeObserver(fit).observe(svg);
    show();
    says.setAttribute("aria-live", "polite"); // from now on, changes are read out
  }

  document.querySelectorAll(".touch:not([data-ready])").forEach(begin);
})();
