"""The command ``transformer-lib``: its options are settings classes, read by tyro."""

import importlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import torch
import tyro
from pydantic import ValidationError
from tqdm import tqdm
from tyro.conf import OmitArgPrefixes, Positional, arg

import transformer_lib.translation.run as runs
from transformer_lib.data.files import fetch
from transformer_lib.data.multi30k import MULTI30K
from transformer_lib.data.recipes import ZAPIER
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.models.registry import model_entry
from transformer_lib.training.checkpoints import average_run
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import process, process_group
from transformer_lib.translation.evaluation import evaluate_run
from transformer_lib.translation.export import export_run
from transformer_lib.translation.run import TrainOptions
from transformer_lib.translation.translator import (
    Precision,
    Translation,
    Translator,
    pick_device,
    pretrained_names,
    read_config,
    shown,
    weights_file,
)

ALIASES = {"start_from": "from"}  # options whose name in Python is another


def optional(owner: type, *, hidden: Sequence[str] = (), defaults: dict[str, Any] | None = None) -> Any:
    """A dataclass with the fields of a settings class, each None unless it is typed; nothing is checked yet.

    Args:
        hidden: fields that cannot be typed.
        defaults: for the help; None for those of the class.
    """
    hints = get_type_hints(owner, include_extras=True)
    options = []
    for entry in fields(owner):
        name, hint = entry.name, hints[entry.name]
        flag = hint is bool and name not in hidden
        default = defaults.get(name) if defaults else entry.default
        plain = default is not False and isinstance(default, int | float | str | tuple | list)
        hint_of_default = f"(default: {default})" * plain
        say = arg(name=ALIASES.get(name), metavar=_metavar(hint), help_behavior_hint=hint_of_default)
        value = field(default=entry.default if flag else None, init=name not in hidden)
        options.append((name, Annotated[bool if flag else hint | None, say], value))
    unchecked = {"__post_init__": lambda self: None, "__module__": owner.__module__}
    return make_dataclass(owner.__name__, options, bases=(owner,), namespace=unchecked, frozen=True)


def _metavar(hint: Any) -> str | None:
    """A short name for the values of an option; None leaves it to tyro, which lists the choices."""
    names = {int: "INT", float: "FLOAT", str: "TEXT"}
    kinds = [get_args(one)[0] if get_args(one) else one for one in (hint, *get_args(hint))]
    return next((names[kind] for kind in kinds if kind in names), None)


def typed(options: Any) -> dict[str, Any]:
    """The options that were typed."""
    values = {entry: getattr(options, entry.name) for entry in fields(options)}
    return {entry.name: value for entry, value in values.items() if value != entry.default}


Run = Annotated[str, arg(metavar="RUN")]
Weights = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
_Search: Any = optional(SearchConfig)
_BestSearch: Any = optional(SearchConfig, hidden=["n_best"])


@dataclass(frozen=True)
class Download:
    """Fetch the files of a data set into the cache, check them by their SHA-256, and print where they are.

    multi30k: 29,000 captions of photographs in English, German and French (Elliott et al., 2016), for non-commercial
    research and education. zapier: titles of recipes with their programs. The cache is ~/.cache/transformer_lib, or
    the folder named by TRANSFORMER_LIB_CACHE.
    """

    data: Positional[Literal["multi30k", "zapier"]]
    """The data set."""

    def run(self) -> int:
        """Fetch the files."""
        for file in {"multi30k": list(MULTI30K.values()), "zapier": [ZAPIER]}[self.data]:
            print(fetch(file), flush=True)
        return 0


@dataclass(frozen=True)
class Train:
    """Train a translator in a folder of its own, go on with a training, or fine-tune a translator.

    What is not given is chosen for the model and the size of the corpus, and kept in config.json. Ctrl-C saves and says
    how to go on. Under torchrun, all processes train together. The options of a model are shown by --model NAME --help.

    examples:
      transformer-lib train --data sentences.tsv --output runs/mine
      transformer-lib train --resume --output runs/mine --epochs 60
      transformer-lib train --from multi30k-en-de --data sentences.tsv --output runs/fine
      transformer-lib train --model luong --score dot --output runs/luong
    """

    output: Path
    """Folder of the run."""
    plan: Any
    training: Any
    model: Any
    resume: bool = False
    """Go on with the run in that folder; --epochs and --patience let it train longer."""
    save_every: int = 500
    """Updates between two saves."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""

    def run(self) -> int:
        """Train, alone or with the other processes of torchrun."""
        if self.save_every < 1:
            raise ValueError(f"save_every={self.save_every} must be at least 1")
        if "WORLD_SIZE" not in os.environ:  # torchrun sets it
            place = pick_device(self.device)
            with self.begun():
                return self.follow(place)
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        with process_group(self.device.replace("auto", auto), self.begun()) as place:
            return self.follow(place)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """The locked folder of the run, new or resumed."""
        options, training, model = typed(self.plan), typed(self.training), typed(self.model)
        fixed = sorted({**options, **training, **model}.keys() - {"epochs", "patience"})
        if self.resume and not (self.output / "config.json").is_file():
            raise ValueError(f"{self.output} holds no run to go on with: leave out --resume to begin one")
        with runs.locked(self.output):
            if self.resume and fixed:
                names = (ALIASES.get(name, name) for name in fixed)
                raise ValueError(f"--resume keeps the run's options; leave out {', '.join(names)}")
            if not self.resume:
                plan = TrainOptions(**options, training=training, model_options=model)
                for note in runs.create_run(plan, self.output):
                    print(note, file=sys.stderr, flush=True)
            yield

    def follow(self, device: Any) -> int:
        """Train, and tell how it goes."""
        changes = typed(self.training) if self.resume else {}
        folder, _, trainer = runs.open_run(self.output, device, **changes)
        config, (rank, world) = trainer.config, process()

        def say(line: str) -> None:
            if rank == 0:
                print(line, file=sys.stderr, flush=True)

        size = sum(parameter.numel() for parameter in trainer.model.parameters())
        processes = f", {world} processes" if world > 1 else ""
        say(
            f"{type(trainer.model).__name__}: {size:,} parameters, {len(trainer.train):,} pairs, on {device}"
            f"{processes}\nbatches of {config.max_tokens:,} tokens, {config.epochs} epochs, "
            f"at most {trainer.total:,} updates, the first {config.warmup:,} to warm up"
        )
        if not trainer.fit(say, self.save_every, sys.stderr.isatty()):
            say(f"stopped and saved; go on with: transformer-lib train --output {shlex.quote(str(folder))} --resume")
            return 130
        say(f"done: lowest validation loss {trainer.progress.best:.3f} without smoothing; {weights_file(folder)}")
        return 0


@dataclass(frozen=True)
class Translate:
    """Translate line by line, from a file or from standard input; each line is written as soon as it is done.

    With --n-best, each translation is preceded by the number of its line and a tab. Progress is on standard error.

    examples:
      transformer-lib translate multi30k-en-de sentences.txt --output saetze.txt
      transformer-lib translate runs/mine - --n-best 3 --scores < sentences.txt
    """

    translator: Positional[Run]
    """Folder of a run, or the name of a shipped model."""
    input: Positional[Annotated[str, arg(metavar="FILE")]] = "-"
    """File, one sentence a line; - is standard input."""
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File to write; default: standard output."""
    scores: bool = False
    """Write score, tab, log-probability, tab before each."""
    json: bool = False
    """Write one JSON object for each line."""
    skip_bad: bool = False
    """Write an empty line where a line is too long or not UTF-8, instead of stopping there."""
    search: _Search = field(default_factory=_Search)
    weights: Weights = None
    """averaged, best or epoch-N; averaged if there is one."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""

    def run(self) -> int:
        """Translate the input, and keep what was written whatever happens."""
        translator = Translator.from_pretrained(self.translator, device=self.device, weights=self.weights)
        config, lines = replace(translator.decoding, **{"n_best": 1} | typed(self.search)), None
        if why := translator.refusal("", config):
            raise ValueError(f"the search has {why}")
        with self.streams() as (stream, out):
            if stream.seekable() and stream.tell() == 0:  # a file
                lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
                stream.seek(0)
            pace = 0.1 if sys.stderr.isatty() else 10
            with tqdm(unit=" lines", total=lines, leave=False, delay=2, mininterval=pace) as bar:
                try:
                    for ready in read_lines(stream):
                        self.translate(ready, translator, config, out, bar)
                except KeyboardInterrupt as stop:
                    place = f" of {self.output}" if self.output else ""
                    _tell(bar, f"stopped after {bar.n:,} lines{place}")
                    return 143 if stop.args else 130
        return 0

    def translate(self, lines: list[bytes], translator: Translator, config: SearchConfig, out: Any, bar: Any) -> None:
        """Translate some lines and write them."""
        texts = [line.decode("utf-8", "replace") for line in lines]
        bad = {i: why for i, line in enumerate(lines) if (why := _problem(line, texts[i], translator, config))}
        texts = texts if self.skip_bad or not bad else texts[: min(bad)]
        good = [i for i in range(len(texts)) if i not in bad]
        best = dict(zip(good, translator.search([texts[i] for i in good], config), strict=True))
        name = "standard input" if self.input == "-" else self.input
        for i, text in enumerate(texts):
            of_line, where = best.get(i, [Translation("")]), f"{name}, line {bar.n + 1}"
            write_whole(out, self.shown(bar.n + 1, text, of_line).encode())
            bar.update()
            bar.n += bar.disable  # switched off by TQDM_DISABLE, it does not count
            if i in bad:
                _tell(bar, f"{where}: left empty, it {bad[i]}")
            elif doubt := of_line[0].doubt:
                _tell(bar, f"{where}: {doubt.text}")
            elif of_line[0].unknown:
                _tell(bar, f"{where}: unknown words: {shown(of_line[0].unknown)}")
        if len(texts) < len(lines):
            raise ValueError(f"{name}, line {bar.n + 1} {bad[len(texts)]}; --skip-bad leaves such lines empty")

    def shown(self, number: int, line: str, best: list[Translation]) -> str:
        """The lines that are written for one line of input."""
        if self.json:
            rows = [{name: value for name, value in vars(one).items() if name != "doubt"} for one in best]
            entry = {"line": number, "source": line, "translations": rows}
            return json.dumps(entry) + "\n"
        front = f"{number}\t" if (self.search.n_best or 1) > 1 else ""
        scores = [f"{one.score:.4f}\t{one.log_probability:.4f}\t" if self.scores else "" for one in best]
        return "".join(f"{front}{score}{one.text}\n" for score, one in zip(scores, best, strict=True))

    @contextmanager
    def streams(self) -> Iterator[tuple[Any, Any]]:
        """Input and output as streams of bytes; a file of output is begun anew."""
        if (self.input == "-" and sys.stdin is None) or (self.output is None and sys.stdout is None):
            raise OSError(f"standard {'out' if sys.stdin else 'in'}put is closed: name a file")
        with ExitStack() as stack:
            if self.input == "-":
                stream: Any = sys.stdin.buffer
            else:
                stream = stack.enter_context(open(self.input, "rb"))
            if self.output is None:
                yield stream, sys.stdout.buffer
                return
            with suppress(io.UnsupportedOperation):  # a stream in memory has no file number
                if self.output.is_file() and os.path.samestat(os.fstat(stream.fileno()), self.output.stat()):
                    raise ValueError(f"{self.output} is the input: name another file")
            self.output.parent.mkdir(parents=True, exist_ok=True)
            yield stream, stack.enter_context(self.output.open("wb"))


def write_whole(out: Any, line: bytes) -> None:
    """Write a line at once; if the disk is full, a file keeps the lines before it and no part of this one."""
    out.flush()
    stream, left = getattr(out, "raw", out), memoryview(line)
    try:
        while left:
            left = left[stream.write(left) :]
    except OSError:
        with suppress(OSError):  # a pipe cannot be cut
            if (end := os.fstat(stream.fileno()).st_size) == stream.tell():
                stream.truncate(end - len(line) + len(left))
        raise


def read_lines(stream: Any, most: int = 32) -> Iterator[list[bytes]]:
    """Lines of a stream, some at a time as soon as they are to be had; only a newline ends a line."""
    parts, mark = list[bytes](), b"\xef\xbb\xbf"  # of a file that begins with a byte order mark
    while data := stream.read1(1 << 16):
        head, *lines = data.split(b"\n")
        parts.append(head)
        if lines:
            ready, parts = [b"".join(parts).removeprefix(mark), *lines[:-1]], [lines[-1]]
            mark = b""
            for begin in range(0, len(ready), most):
                yield [line.removesuffix(b"\r") for line in ready[begin : begin + most]]
    if rest := b"".join(parts).removeprefix(mark):
        yield [rest.removesuffix(b"\r")]


def _tell(bar: Any, text: str) -> None:
    """A line on standard error, above the progress on a terminal."""
    with suppress(BrokenPipeError):  # nobody reads the messages, but the translations may be wanted
        if sys.stderr.isatty():
            bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


def _problem(line: bytes, text: str, translator: Translator, config: SearchConfig) -> str | None:
    """The reason why a line cannot be translated, or None."""
    if b"\0" in line or text.encode() != line:
        return "is not UTF-8 text (is it another encoding, or a packed file?)"
    why = translator.refusal(text, config)
    return f"has {why}" if why else None


@dataclass(frozen=True)
class Evaluate:
    """Translate the test set of the training's corpus and score the translations.

    Loss, exact match, BLEU with its signature and 95 % interval, chrF. The corpus must be the one
    that was trained on.

    examples:
      transformer-lib evaluate runs/mine
      transformer-lib evaluate captions-en-de --beam-size 1 --json
    """

    translator: Positional[Run]
    """Folder of a run, or the name of a shipped model."""
    part: Literal["validation", "test"] = "test"
    """Part of the corpus to score."""
    data: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """Where the file of sentence pairs is now, if it has moved."""
    json: bool = False
    """Print one JSON object."""
    search: _BestSearch = field(default_factory=_BestSearch)
    weights: Weights = None
    """averaged, best or epoch-N; averaged if there is one."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""

    def run(self) -> int:
        """Print the scores."""
        given: dict[str, Any] = {"device": self.device, "weights": self.weights, "data": self.data}
        scores = evaluate_run(self.translator, self.part, **given, **typed(self.search))
        lines = [f"{name}: {value}" for name, value in scores.items()]
        print(*[json.dumps(scores)] if self.json else lines, sep="\n", flush=True)
        return 0


@dataclass(frozen=True)
class Average:
    """Average the weights of the last epochs of a run into averaged.safetensors.

    examples:
      transformer-lib average runs/mine --last 3
    """

    folder: Positional[Run]
    """Folder of a run."""
    last: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """How many epochs; all that are kept unless given."""

    def run(self) -> int:
        """Write the average."""
        folder = Path(self.folder)
        read_config(folder)
        names = [re.fullmatch(r"epoch-(\d+)", path.stem) for path in folder.glob("*.safetensors")]
        epochs = sorted(int(name[1]) for name in names if name)
        last = len(epochs) if self.last is None else self.last
        if not epochs or not 1 <= last <= len(epochs):
            asked = "" if self.last is None else f", not {last}"
            raise ValueError(f"{folder} keeps {len(epochs)} epochs to average (train with --average){asked}")
        epochs = epochs[-last:]
        average_run(folder, epochs)
        print(f"{folder}/averaged.safetensors: epochs {', '.join(map(str, epochs))}", flush=True)
        return 0


@dataclass(frozen=True)
class Export:
    """Write a small folder that translates, with a card.

    The exported translator will use the search options given here unless it is told otherwise.

    examples:
      transformer-lib export runs/mine --output mine
      transformer-lib export captions-en-de --beam-size 8 --output mine-8
    """

    translator: Positional[Run]
    """Folder of a run, or the name of a shipped model."""
    output: Path
    """Folder to write."""
    search: _BestSearch = field(default_factory=_BestSearch)
    weights: Weights = None
    """averaged, best or epoch-N; averaged if there is one."""
    precision: Precision = "float16"
    """Of the stored weights; int8 is half the size of float16, and may change a few translations."""

    def run(self) -> int:
        """Write the folder."""
        print(export_run(self.translator, self.output, self.weights, self.precision, **typed(self.search)))
        return 0


def near(word: str, names: Collection[str], before: str = "") -> str:
    """A question for the names that may have been meant, if there are any."""
    parts = {name: re.split(r"[-_. ]", name) for name in names}
    found = dict.fromkeys(get_close_matches(word, names, 3, 0.7))
    found |= dict.fromkeys(name for name in names if name.startswith(word) or [*word] == [p[:1] for p in parts[name]])
    return f": did you mean {' or '.join(before + name for name in [*found][:3])}?" if found else ""


def option_names(kind: Any) -> set[str]:
    """What can be typed after two hyphens for a command or a part of it."""
    names, hints = set(), get_type_hints(kind, include_extras=True)
    for entry in fields(kind):
        part = entry.default_factory
        if isinstance(part, type) and is_dataclass(part):
            names |= option_names(part)
        elif entry.init and Positional not in getattr(hints[entry.name], "__metadata__", ()):
            name = ALIASES.get(entry.name, entry.name).replace("_", "-")
            names |= {name, f"no-{name}"} if isinstance(entry.default, bool) else {name}
    return names


def check_options(command: str, kind: Any, arguments: Sequence[str]) -> None:
    """Refuse an option that the command does not have, and name those that may have been meant."""
    names = option_names(kind) | {"help"}
    for one in arguments:
        if one == "None" or one.endswith("=None"):
            raise ValueError(f"{command}: None cannot be typed; it can be given in Python")
        # also with one hyphen, or with the dash that a text program makes of two
        dashes, name = re.match("([-–—]*)([^=]*)", one).groups()  # type: ignore[union-attr]
        name = name.replace("_", "-")
        if dashes and re.match("[a-zA-Z][a-zA-Z-]", name) and (dashes != "--" or name not in names):
            more = " --model NAME" if command == "train" else ""
            asked = near(name, sorted(names), "--") or f": see transformer-lib {command}{more} --help"
            raise ValueError(f"{command} has no option {one.split('=')[0]}{asked}")


def of_file(error: OSError) -> str:
    """An error of the system in plain words, and what to do."""
    name = os.fspath(error.filename)
    if isinstance(error, FileNotFoundError):
        with suppress(OSError):
            return f"there is no file {name}{near(Path(name).name, os.listdir(Path(name).parent))}"
        return f"there is no file {name}, nor the folder {Path(name).parent}"
    if isinstance(error, IsADirectoryError):
        return f"{name} is a folder: name a file in it"
    return str(error)


def boxed(text: str) -> str:
    """What tyro says in a box, in one line, without what it adds below."""
    rows = [row.strip("│ ") for row in text.splitlines() if row.startswith("│")]
    ends = [i for i, row in enumerate(rows) if row.startswith(("──", "Got errors:", "Argument helptext:"))]
    line = " ".join(" ".join(rows[: min(ends, default=None)]).split()).rstrip(" .")
    wrong = r"Error parsing (\S+): no type matching (?:{None}\|)?(\w+) .* from \['(.*)'\]"
    return re.sub(wrong, r"\1=\3 is not \2", line)


def fail(error: Exception) -> int:
    """Tell an error in one line; the exit code."""
    text = of_file(error) if isinstance(error, OSError) and isinstance(error.filename, str) else str(error)
    if isinstance(error, ValidationError):
        rows = [(".".join(map(str, one["loc"])), one) for one in error.errors()]
        text = "; ".join(f"{name}={one['input']!r}: {one['msg']}" if name else one["msg"] for name, one in rows)
    line = " ".join(text.replace("Value error, ", "").split())
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
    print(f"transformer-lib: error: {line[:1000]}", file=sys.stderr)
    return 1


def train_command(arguments: Sequence[str]) -> Any:
    """The command ``train``, with the options of the model that the arguments name."""
    words = [part for one in arguments for part in one.split("=", 1)]
    name = words[words.index("--model") + 1] if "--model" in words[:-1] else TrainOptions.model
    config = model_entry(name).config_class
    own = {entry.name for one in (TrainOptions, TrainingConfig) for entry in fields(one)}
    names = [entry.name for entry in fields(config)]
    sizes = [name for name in names if name.endswith("vocab_size") or name == "special" or name in own]
    defaults = vars(runs.model_config(TrainOptions(model=name), 300, 300))
    parts = {
        "plan": optional(TrainOptions, hidden=("model_options", "training")),
        "training": optional(TrainingConfig, hidden=("seed",), defaults=runs.recipe(name)),
        "model": optional(config, hidden=sizes, defaults=defaults),
    }
    options = [(name, kind, field(default_factory=kind)) for name, kind in parts.items()]
    return make_dataclass("Train", options, bases=(Train,), namespace={"__doc__": Train.__doc__}, frozen=True)


def shipped() -> str:
    """The translators that come with the library, a line for each."""
    data = {"captions": "generated captions", "multi30k": "captions of photos", "everyday": "everyday sentences"}
    lines = []
    for name in pretrained_names():
        config = read_config(name)
        of, text = (config.options or {}).get("data"), config.text
        lines.append(f"  {name}: {data.get(str(of), of)}, {text.source} to {text.target}, {config.model.name}")
    return "\n".join(["translators that come with it:", *lines])


def parse(arguments: list[str]) -> Any:
    """The command that the arguments name, with its options."""
    kinds = (Download, Train, Translate, Evaluate, Average, Export)
    commands: dict[str, type] = {one.__name__.lower(): one for one in kinds}
    commands["train"] = train_command(arguments if arguments[:1] == ["train"] else ())
    if arguments[:1] in (["--help"], ["-h"]):  # one line for each
        short = {name: {"__doc__": str(one.__doc__).split("\n")[0]} for name, one in commands.items()}
        commands = {name: make_dataclass(name, [], namespace=body) for name, body in short.items()}
    elif arguments[:1] and arguments[0] in commands:
        check_options(arguments[0], commands[arguments[0]], arguments[1:])
    elif arguments and not arguments[0].startswith("-"):
        asked = near(arguments[0], [*commands]) or f", only {', '.join(commands)}"
        raise ValueError(f"there is no command {arguments[0]}{asked}")
    make: Any = tyro.extras.subcommand_cli_from_dict
    told = io.StringIO()  # what is wrong with the arguments
    about = {"prog": "transformer-lib", "description": f"Train translators and translate with them.\n\n{shipped()}"}
    try:
        with redirect_stderr(told):
            return make(commands, args=arguments, config=(OmitArgPrefixes,), **about)
    except SystemExit as stop:
        if not stop.code:
            raise  # that was the help
        of = f" {arguments[0]}" if arguments[:1] and arguments[0] in commands else ""
        raise ValueError(f"{boxed(told.getvalue())}; see transformer-lib{of} --help") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command ``transformer-lib``.

    Args:
        arguments: of the command; None takes those of the process.

    Returns:
        0 if all went well, 1 after an error (told in one line), 130 after Ctrl-C, 143 after SIGTERM
        (130 if a training was saved).
    """
    if sys.stderr is None:  # closed: nobody listens
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        rest = import_modules(sys.argv[1:] if arguments is None else arguments)
        # elsewhere than on Unix a pipe may not be UTF-8
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        if rest[:1] == ["--version"]:
            print(f"transformer-lib {importlib.import_module('transformer_lib').__version__}")
            return 0
        return parse(rest).run()
    except BrokenPipeError:  # nobody reads on; nor shall the interpreter try when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        return fail(error)
    except RuntimeError as error:
        if not any(word in str(error) for word in ("memory", "overflow", "home")):
            raise
        return fail(error)
    except KeyboardInterrupt as stop:
        return 143 if stop.args else 130


def import_modules(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--import MODULE``; each module is imported, for the models that it registers."""
    rest = list(arguments)
    while at := [i for i, word in enumerate(rest) if word.split("=")[0] == "--import"]:
        _, typed, name = rest.pop(at[0]).partition("=")
        sys.path[:0] = [os.getcwd()]
        importlib.import_module(name if typed or at[0] == len(rest) else rest.pop(at[0]))
    return rest
