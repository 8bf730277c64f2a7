// A translator of the reader's own: files that were dropped or chosen become a model that
// the page can load. It is fetched when it is needed.

import { readKnown } from "./known.js";

// The files of what was dropped, those of a folder as well.
export async function filesOf(entries) {
  const found = [];
  const walk = async (entry) => {
    if (entry?.isFile) found.push(await new Promise((...then) => entry.file(...then)));
    if (!entry?.isDirectory) return;
    const reader = entry.createReader();
    const some = () => new Promise((...then) => reader.readEntries(...then)); // a hundred or so
    for (let here = await some(); here.length; here = await some())
      for (const one of here) if (one.isFile) await walk(one);
  };
  await Promise.all(entries.map(walk));
  return found;
}

const WEIGHTS = ["weights", "averaged", "best"].map((name) => `${name}.safetensors`);
const WANTED =
  "Choose the whole folder that transformer-lib train or transformer-lib export wrote.";
const CUT = "is not whole, or no file of weights";

// Refuses weights whose header and size do not fit each other.
async function check(weights) {
  let end;
  try {
    const first = new DataView(await weights.slice(0, 8).arrayBuffer());
    const start = 8 + Number(first.getBigUint64(0, true));
    const entries = Object.values(JSON.parse(await weights.slice(8, start).text()));
    end = start + Math.max(...entries.map((one) => one.data_offsets?.[1] ?? 0));
  } catch {}
  if (end !== weights.size) throw new Error(`${weights.name} ${CUT}. ${WANTED}`);
}

// A model that is made of a reader's own files, as `export` and `train` write them.
export async function ownModel(files) {
  const inside = (file) => file.webkitRelativePath?.split("/").length > 2; // a folder in it
  const own = files.filter((file) => !inside(file));
  const here = new Map(own.map((file) => [file.name, file]));
  const weights = here.get(WEIGHTS.find((name) => here.has(name)));
  const file = (name) => (name === WEIGHTS[0] ? weights : here.get(name));
  const names = ["config.json", WEIGHTS[0]];
  const missing = (those) => {
    const gone = those.filter((name) => !file(name));
    if (!gone.length) return;
    const verb = gone.length > 1 ? "are" : "is";
    const what = those.some(file)
      ? `This folder is not whole: ${gone.join(" and ")} ${verb} missing.`
      : "This is no folder of a translator.";
    throw new Error(`${what} ${WANTED}`);
  };
  missing(names);
  let config;
  try {
    config = JSON.parse(await file("config.json").text());
    names.push(...Object.values(config.tokenizers));
    if (!config.model.name) throw new Error();
  } catch {
    throw new Error(`config.json is not that of a translator. ${WANTED}`);
  }
  missing(names);
  await check(weights);
  let known;
  try {
    known = readKnown(JSON.parse(await here.get("known.json").text()));
  } catch {} // it says nothing of what it knows
  const { source, target } = config.text ?? {};
  const folder = weights.webkitRelativePath?.split("/").at(-2);
  return {
    name: folder || "mine",
    label: `Yours: ${folder || [source, target].filter(Boolean).join(" to ") || config.model.name}`,
    source: source ?? "",
    target: target ?? "",
    sentences: [],
    captions: false,
    knows: "Your own translator.",
    terms: "It stays in your browser and is sent nowhere.",
    bytes: names.reduce((sum, name) => sum + file(name).size, 0),
    known,
    read: async (name) => await file(name).arrayBuffer(),
  };
}
