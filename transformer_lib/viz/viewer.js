document.querySelectorAll(".tl-attention:not([data-ready])").forEach(function (root) {
  root.dataset.ready = "yes";
  var maps = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  var sources = Array.from(root.querySelectorAll("li > span"));
  var targets = Array.from(root.querySelectorAll("button"));
  var choices = Array.from(root.querySelectorAll("select"));
  var says = root.querySelector("[aria-live]");
  var chosen = 0;
  function weights() {
    return choices.reduce(function (part, choice) { return part[choice.selectedIndex]; }, maps)[chosen];
  }
  function show(index) {
    chosen = index;
    var row = weights();
    targets.forEach(function (button, i) {
      button.setAttribute("aria-pressed", String(i === chosen));
      button.tabIndex = i === chosen ? 0 : -1;
    });
    sources.forEach(function (word, i) {
      word.style.setProperty("--tl-weight", row[i] / 1000);
      word.title = (row[i] / 10).toFixed(1) + " %";
    });
    var best = row.map(function (w, i) { return [w, i]; }).filter(function (x) { return x[0] >= 10; });
    best.sort(function (a, b) { return b[0] - a[0] || a[1] - b[1]; });
    says.textContent = targets[chosen].textContent + ": " + (best.slice(0, 3).map(function (x) {
      return sources[x[1]].textContent + " " + Math.round(x[0] / 10) + " %";
    }).join(", ") || "no word");
  }
  targets.forEach(function (button, i) {
    ["mouseenter", "focus", "click"].forEach(function (kind) {
      button.addEventListener(kind, function () { show(i); });
    });
    button.addEventListener("keydown", function (event) {
      var last = targets.length - 1;
      var next = { ArrowRight: Math.min(i + 1, last), ArrowLeft: Math.max(i - 1, 0), Home: 0, End: last }[event.key];
      if (next === undefined) { return; }
      event.preventDefault();
      event.stopPropagation();
      targets[next].focus();
    });
  });
  choices.forEach(function (choice) { choice.addEventListener("change", function () { show(chosen); }); });
  show(0);
});
