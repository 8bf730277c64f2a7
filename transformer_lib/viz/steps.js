document.querySelectorAll(".tl-steps:not([data-ready])").forEach(function (root) {
  root.dataset.ready = "yes";
  var frames = Array.from(root.querySelectorAll(".tl-frame"));
  var slider = root.querySelector("input");
  var says = root.querySelector("output");
  function show(step) {
    slider.value = step;
    frames.forEach(function (frame, i) { frame.hidden = i !== Number(slider.value); });
    says.textContent = "step " + (Number(slider.value) + 1) + " of " + frames.length;
  }
  slider.addEventListener("input", function () { show(slider.value); });
  slider.addEventListener("keydown", function (event) { event.stopPropagation(); });
  root.querySelectorAll("button").forEach(function (button, i) {
    button.addEventListener("click", function () { show(Number(slider.value) + (i ? 1 : -1)); });
  });
  show(0);
});
