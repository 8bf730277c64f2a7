// Puts the chapter whose title holds the words that were searched for before pages that only mention them.
const plain = (text) => text.toLowerCase().replace(/<[^>]*>/g, "").replace(/[^\p{L}\p{N}]+/gu, " ").trim();
// Words of a question that say nothing about its subject, beside those that the search leaves out anyway.
const FILLER = /\b(?:an?|are|can|do|does|how|i|is|my|the|to|we|what|when|where|which|why|you|your)\b/g;
// What is asked for in other words than the title's.
const MEANT = [
  [/attention (?:is )?all (?:you )?need|vaswani/, "the transformer"],
  [/train.* own/, "using the command"],
  [/\b(?:install|colab|licen[cs]e|cit)/, "how to run it"],
  [/^(?:on )?gpus?$/, "train a translator on a gpu"],
  [/\b(?:rnn|lstm|gru|seq2seq|recurrent)/, "an encoder decoder"],
  [/word alignment/, "learning to align"],
  [/quer.* key/, "self attention"],
  [/^softmax$|softmax q|\bqk|sqrt d/, "scaled dot product attention"],
  [/\brope\b/, "positional encoding"],
  [/tokeni[sz]|\bbpe$/, "subword tokenization"],
  [/\btop [kp]\b/, "sampling"],
  [/\bmoe\b/, "mixture of experts"],
  [/\brlhf\b|\bdpo\b/, "from prediction to assistant"],
];
let words = [];
let meant;

function ask(query) {
  meant = MEANT.find(([pattern]) => pattern.test(plain(query)))?.[1];
  words = (meant ?? plain(query)).split(" ").map((word) => word.replace(/s$/, ""));
}

var Scorer = {
  score: (result) => {
    const [page, title, anchor, , score] = result;
    if (anchor.startsWith("#term-")) result[1] = `${termAt(anchor.slice(1))} (Glossary)`;
    const chapter = /^book\/(history|transformer|translation|scale|descendants)\//.test(page);
    const name = plain(title).replace(/^\d+ /, "");
    const joined = name.replaceAll(" ", ""); // so that "warmup" is in "warm-up"
    const named = !anchor && words.every((word) => joined.includes(word));
    const bonus = chapter || name === meant ? 100 : 20;
    return score + (chapter ? 5 : 0) + (named ? bonus + (name.startsWith(words[0]) ? 10 : 0) : 0);
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

// A term of the glossary as it is written there: the index has it in small letters, its address has the capitals.
function termAt(id) {
  const places = Object.entries(Search._index.indexentries);
  const [term] = places.find(([, found]) => found.some(([, place]) => place === id)) ?? [id];
  return term.replace(/./g, (letter, i) => (id[i + 5]?.toLowerCase() === letter ? id[i + 5] : letter));
}

// How many letters have to be inserted, left out, replaced or exchanged with their neighbours.
function distance(a, b) {
  const rows = [[...Array(b.length + 1).keys()]];
  for (let i = 1; i <= a.length; i++) {
    rows[i] = [i];
    for (let j = 1; j <= b.length; j++) {
      const other = a[i - 1] !== b[j - 1];
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + other);
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.length][b.length];
}

// The query without fillers, and with the nearest word of a title or of the glossary for one that no page has.
function mend(query) {
  const { alltitles, indexentries, terms, titleterms } = Search._index;
  const indexed = Object.keys({ ...terms, ...titleterms });
  const stemmer = new Stemmer();
  let named;
  const one = (typed) => {
    const stem = stemmer.stemWord(typed.toLowerCase());
    if (typed.length < 5 || /[^\p{L}]/u.test(typed) || indexed.some((term) => term.startsWith(stem))) return typed;
    named ??= [...new Set(plain([...Object.keys(alltitles), ...Object.keys(indexentries)].join(" ")).split(" "))];
    const most = typed.length < 8 ? 1 : 2;
    const near = named.map((word) => [distance(typed.toLowerCase(), word), word]).filter(([far]) => far <= most);
    return near.length ? near.reduce((a, b) => (b[0] < a[0] ? b : a))[1] : typed;
  };
  const kept = query.toLowerCase().replace(FILLER, " ").trim() ? query.replace(new RegExp(FILLER, "gi"), " ") : query;
  return kept.trim().split(/\s+/).map((part) => part.replace(/[\p{L}\p{N}_]+/gu, one)).join(" ");
}

const search = Search.query;
Search.query = (query) => {
  const mended = mend(query);
  ask(mended);
  const changed = mended.toLowerCase().split(" ").filter((word) => !query.toLowerCase().includes(word));
  if (changed.length) {
    const note = document.createElement("p");
    note.textContent = `No page has all of these words as you typed them. These results are for “${mended}”.`;
    Search.title.after(note);
  }
  search(mended);
};

// An excerpt is text of the article, without its title or what stands above it. A formula is shown if it is as plain as d_k.
Search.htmlToText = (page, anchor) => {
  const article = new DOMParser().parseFromString(page, "text/html").querySelector("article");
  const place = !anchor ? null : article.querySelector(`[id="${anchor.slice(1)}"]`);
  const part = (place?.tagName === "DT" && place.nextElementSibling) || place || article; // a term says less than its text
  for (const one of part.querySelectorAll("h1, .headerlink, script, style, .tl-live, .tl-static")) one.remove();
  for (const one of part.querySelectorAll(".katex")) {
    const formula = one.querySelector("annotation")?.textContent ?? "";
    one.replaceWith(formula.includes("\\") ? "…" : formula);
  }
  return part.textContent.replace(/\s+/g, " ");
};
