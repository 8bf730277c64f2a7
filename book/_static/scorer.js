// Puts the chapter whose title holds the words that were searched for before pages that only mention them.
const plain = (text) => text.toLowerCase().replace(/<[^>]*>/g, "").replace(/[^\p{L}\p{N}]+/gu, " ").trim();
const asked = plain(new URLSearchParams(location.search).get("q") ?? "").replace("attention is all you need", "the transformer");
const words = asked.split(" ").map((word) => word.replace(/s$/, ""));

var Scorer = {
  score: ([page, title, anchor, , score]) => {
    const chapter = /^book\/(history|transformer|translation|scale|descendants)\//.test(page);
    const named = !anchor && words.every((word) => plain(title).includes(word));
    return score + (chapter ? 5 : 0) + (named ? (chapter ? 100 : 20) : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// An excerpt is text of the article, without its title or what stands above it. A formula is shown if it is as plain as \(d_k\).
Search.htmlToText = (page, anchor) => {
  const article = new DOMParser().parseFromString(page, "text/html").querySelector("article");
  const part = (anchor && article.querySelector(`[id="${anchor.slice(1)}"]`)) || article;
  for (const one of part.querySelectorAll("h1, .headerlink, script, style, .tl-live, .tl-static")) one.remove();
  return part.textContent.replace(/\\\((.*?)\\\)/gs, (_, formula) => (formula.includes("\\") ? "…" : formula)).replace(/\s+/g, " ");
};
