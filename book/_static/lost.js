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

// The nearest page, or undefined if none is near.
function nearest(address, pages) {
  const name = decodeURIComponent(address).split("/").pop().toLowerCase().replace(/\.html?$|^\d+_/g, "");
  const found = pages.map((page) => [distance(name, page.split("/").pop()), page]);
  const [away, page] = found.sort((a, b) => a[0] - b[0])[0];
  return away < 6 ? page : undefined;
}

const link = globalThis.document?.querySelector("#near a");
const page = link && nearest(location.pathname, link.dataset.pages.split(" "));
if (page) {
  link.href += `${page}.html`;
  link.textContent = page;
  link.parentElement.hidden = false;
}
