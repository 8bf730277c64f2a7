// Let a keyboard reach the formulas and tables that scroll sideways; the theme does it for code.
(() => {
  const regions = "div.math, .pst-scrollable-table-container, .table-scroll";
  const mark = () => {
    for (const region of document.querySelectorAll(regions)) {
      if (region.scrollWidth > region.clientWidth + 1) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    }
  };
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(mark, 150);
  });
  window.addEventListener("load", () => {
    mark();
    window.MathJax?.startup?.promise?.then(mark);
  });
})();
