"""How fast does the command translate a file of 10,000 lines, and how much memory does it need, beside two other engines?"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.harness import Study
from experiments.studies.decoding_speed import LONGEST, NAME, engine, translator
from experiments.tasks import SMOKE, multi30k
from transformer_lib.data.tokenizer import EOS

SEARCH = f"--beam-size 4 --length-penalty 1 --normalization mean --max-length {LONGEST}"
COMMAND = f"transformer_lib translate {NAME} {SEARCH} --device cpu"


def measure(seed, budget, kind):
    """Milliseconds of processor time for a line, and the most memory, of a process of its own, start included."""
    lines = [pair.source for pair in multi30k("train", "de", "en")][: 20 if SMOKE else 10_000]
    command = COMMAND.split() if kind == "library" else [__name__, kind]
    root = str(Path(__file__).parents[2])
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "source.txt"), Path(folder, "target.txt")
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", *command, source, "--output", output]
        one = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
        process = subprocess.Popen(command, env=one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status or len(output.read_text(encoding="utf-8").splitlines()) != len(lines):
            raise RuntimeError(f"{kind} did not translate the file")
    milliseconds = 1000 * (used.ru_utime + used.ru_stime) / len(lines)
    return {"milliseconds": milliseconds, "megabytes": used.ru_maxrss / 1024}


def translate(kind, source, output):
    """Translate a file with another engine, in batches of 64 lines of similar length."""
    encode, decode = translator().source_tokenizer.encode, translator().target_tokenizer.decode
    rows = [[*encode(line), EOS] for line in Path(source).read_text(encoding="utf-8").splitlines()]
    order, search, texts = sorted(range(len(rows)), key=lambda i: len(rows[i])), engine(kind), {}
    for first in range(0, len(order), 64):
        group = order[first : first + 64]
        texts |= zip(group, map(decode, search([rows[i] for i in group], 4)), strict=True)
    Path(output).write_text("".join(f"{texts[i]}\n" for i in range(len(rows))), encoding="utf-8")


STUDY = Study(
    chapter="translation/decoding",
    equal="10,000 German captions from the training pairs, a beam of 4, scores divided by the number of tokens, at most 50 tokens, one thread, float32; processor time of a process of its own, start included; in turns",
    arms={f"a file, {kind}": {"kind": kind} for kind in ("library", "CTranslate2", "Hugging Face")},
    measure=measure,
    metric="milliseconds a line",
    budget=1,
    unit="passes",
    smoke=1,
    seeds=range(3),
    findings={},
)

if __name__ == "__main__":
    translate(sys.argv[1], sys.argv[2], sys.argv[4])
