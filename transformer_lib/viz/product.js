// Matrix products by WebAssembly, where the browser has it and allows it: 405 bytes that
// multiply and add sixteen numbers at a time. Their source is product.wat.

const CODE = [
  "AGFzbQEAAAABCgFgBn9/f39/fwACEAEEcGFnZQZtZW1vcnkCAAEDAgEABwsBB3Byb2R1Y3QAAArb",
  "AgHYAgMEfwF9BHsgAyAEQQJ0aiEJIAIgBUECdGohCCACIAVBcHFBAnRqIQcDQCACIQZDAAAAACEK",
  "IAEEQCABKgIAIQogAUEEaiEBCyAGIAdJBED9DAAAAAAAAAAAAAAAAAAAAAAhCyALIQwgCyENIAsh",
  "DgNAIAsgAP0ABAAgBv0ABAD95gH95AEhCyAMIAD9AAQQIAb9AAQQ/eYB/eQBIQwgDSAA/QAEICAG",
  "/QAEIP3mAf3kASENIA4gAP0ABDAgBv0ABDD95gH95AEhDiAAQcAAaiEAIAZBwABqIQYgBiAHSQ0A",
  "CyALIAz95AEgDSAO/eQB/eQBIQsgCiAL/R8AIAv9HwGSIAv9HwIgC/0fA5KSkiEKCyAGIAhJBEAD",
  "QCAKIAAqAgAgBioCAJSSIQogAEEEaiEAIAZBBGohBiAGIAhJDQALCyADIAo4AgAgA0EEaiEDIAMg",
  "CUkNAAsL",
].join("");

function compile() {
  try {
    const bytes = Uint8Array.from(atob(CODE), (letter) => letter.charCodeAt(0));
    return new WebAssembly.Module(bytes);
  } catch {
    return null; // too old, or not allowed on this page: the plain loop does it
  }
}

const MODULE = compile();
const kernels = new WeakMap(); // for the memory of each model, what multiplies in it

// Room for tensors of these shapes, side by side in one memory. It begins with room for
// a vector that goes in and for one that comes out. Gives a function that hands out
// the next array.
export function makeRoom(shapes, plain = false) {
  const apart = (size) => new Float32Array(size);
  if (plain || !MODULE) return apart;
  const size = (shape) => shape.reduce((product, length) => product * length, 1);
  const longest = Math.max(...shapes.flat());
  const sizes = [longest, longest, ...shapes.map(size)];
  const total = sizes.reduce((sum, one) => sum + one, 0);
  try {
    const memory = new WebAssembly.Memory({ initial: Math.ceil(total / 16384) });
    const { exports } = new WebAssembly.Instance(MODULE, { page: { memory } });
    let end = 0;
    const next = (length) => {
      end += length;
      return new Float32Array(memory.buffer, 4 * (end - length), length);
    };
    const [x, y] = [next(longest), next(longest)];
    kernels.set(memory.buffer, { x, y, product: exports.product });
    return next;
  } catch {
    return apart; // no memory
  }
}

// W x + b, if W lies in a memory that we made; else nothing.
export function product({ weight, bias }, x) {
  const kernel = kernels.get(weight.buffer);
  if (!kernel) return null;
  const rows = weight.length / x.length;
  kernel.x.set(x);
  const places = [weight, bias, kernel.x, kernel.y].map((one) => one?.byteOffset ?? 0);
  kernel.product(...places, rows, x.length);
  return kernel.y.slice(0, rows);
}
