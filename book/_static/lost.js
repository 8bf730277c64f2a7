// On the page for addresses that lead nowhere: a search for the words of the address, which mends typing errors.
const words = decodeURIComponent(location.pathname).replace(/^.*\/|\.html?$/g, "").replace(/[^\p{L}]+/gu, " ").trim();
if (words) {
  const link = document.querySelector("#near a");
  link.search = new URLSearchParams({ q: words });
  link.textContent = words;
  link.parentElement.hidden = false;
}
