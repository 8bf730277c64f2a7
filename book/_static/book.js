// Small things for people who read with a keyboard or a screen reader, which the theme leaves open.
(() => {
  // Formulas and tables that scroll sideways can be reached and scrolled by keyboard; the theme does it for code.
  const regions = ".katex-display, .pst-scrollable-table-container";
  const mark = () => {
    for (const region of document.querySelectorAll(regions)) {
      if (region.scrollWidth > region.clientWidth + 1) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    }
  };

  // What a button says is what it is called.
  const name = () => {
    for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label");
    for (const button of document.querySelectorAll("button.copybtn")) button.setAttribute("aria-label", "Copy");
    for (const button of document.querySelectorAll(".theme-switch-button[aria-label]")) {
      const label = document.createElement("span");
      label.className = "visually-hidden";
      label.textContent = button.getAttribute("aria-label");
      button.removeAttribute("aria-label");
      for (const icon of button.children) icon.setAttribute("aria-hidden", "true");
      button.append(label);
    }
    for (const summary of document.querySelectorAll("nav.bd-links summary")) {
      summary.setAttribute("aria-label", "Pages below");
    }
    const side = document.querySelector("div.bd-sidebar-primary");
    side?.setAttribute("role", "complementary");
    side?.setAttribute("aria-label", "Book");
  };

  // What is folded is printed too, also where the style sheet alone cannot unfold it.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("article details:not([open])")];
    for (const details of closed) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
    closed = [];
  });

  // A link to a line that unfolds unfolds it.
  const unfold = () => {
    let id = location.hash.slice(1);
    try {
      id = decodeURIComponent(id);
    } catch {} // no address of ours
    const target = id && document.getElementById(id);
    let opened = false;
    for (let fold = target?.closest?.("details"); fold; fold = fold.parentElement.closest("details")) {
      opened ||= !fold.open;
      fold.open = true;
    }
    if (opened) target.scrollIntoView(); // its place has changed
  };
  window.addEventListener("hashchange", unfold);

  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(mark, 150);
  });
  document.addEventListener("DOMContentLoaded", name);
  window.addEventListener("load", () => {
    name();
    unfold();
    mark();
  });
})();
