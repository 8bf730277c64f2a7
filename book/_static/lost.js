// On the page for addresses that lead nowhere: a link to the page whose name is nearest to the one asked for.

// How many letters must be changed, added or left out to make one word from another.
function distance(a, b) {
  let row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
    }
    row = next;
  }
  return row[b.length];
}

// The nearest page by its name, among equals a chapter before a module, and by the folders; undefined if none is near.
function nearest(address, pages) {
  const asked = decodeURIComponent(address).toLowerCase().replace(/^.*\/book\/|\.html?$/g, "");
  const last = (path) => path.split("/").pop();
  const name = last(asked).replace(/^\d+_/, "");
  const strange = (page) => distance(asked, page) + (page.startsWith("api/") && !asked.includes("api/") ? 99 : 0);
  const found = pages.map((page) => [distance(name, last(page)), strange(page), page]);
  const [away, , page] = found.sort((a, b) => a[0] - b[0] || a[1] - b[1])[0];
  return away < 6 ? page : undefined;
}

const link = globalThis.document?.querySelector("#near a");
const page = link && nearest(location.pathname, link.dataset.pages.split(" "));
if (page) {
  link.href += `${page}.html`;
  link.textContent = page;
  link.parentElement.hidden = false;
}
