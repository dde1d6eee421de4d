"""The command `mtkit translate`."""

from __future__ import annotations

import gc
import hashlib
import io
import itertools
import json
import logging
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import in_words
from mtkit.cli import options as shared
from mtkit.cli.document_lines import (
    MAX_PRINTED,
    DocumentLines,
    check_document_options,
    doubt_of,
    format_of,
    report_more,
)
from mtkit.cli.line_checks import CheckOptions, check_options, line_checks
from mtkit.cli.output import (
    Recut,
    Windows,
    check_output,
    checked_file,
    output_of,
    refuse_torchrun,
    write_output,
)
from mtkit.documents import FORMATS, Languages

if TYPE_CHECKING:
    from mtkit.align import Aligner, Alignment
    from mtkit.cli.line_checks import LineChecks
    from mtkit.cli.progress import Progress
    from mtkit.run_folder import Run
    from mtkit.translate import IncompleteTranslations, Translation, Translator, Window

log = logging.getLogger(__name__)

sampling_option = shared.option_group("Sampling")

# Segments of a document are longer than lines, and need more time if they have formats.
_SAVED_SEGMENTS = 512
# The options that check translations.
_CHECKS = tuple(option.name for option in fields(CheckOptions))


@shared.command(
    "Translate text, one line in, one line out, or a document.",
    "echo 'The old woman buys a red umbrella.' | mtkit translate",
    "mtkit translate --run runs/mine < test.en > output.de",
    "mtkit translate --run runs/mine --input test.en --output output.de",
    "mtkit translate --run runs/mine film.en.srt --output film.de.srt",
    "mtkit translate --run runs/mine --nbest 5 --sample --top-p 0.9 < test.en",
    "mtkit translate --run runs/parser --tokenized --input sentences.txt",
)
@click.argument("words", metavar="[FILE]", nargs=-1)
@shared.in_out_option(
    "--input FILE",
    "input_path",
    help="Input file, plain or compressed; the same as FILE. Default, or -: standard input.",
)
@shared.output_options
@shared.in_out_option(
    "--nbest N",
    type=click.IntRange(1, 1000),
    help="Print the N best translations of each line: line number, score and text, tab-separated.",
)
@shared.in_out_option(
    "--json",
    "as_json",
    help="Print a JSON object per line: translations with scores and tokens, and the time taken."
    " Of a document, print one per segment, with its place.",
)
@shared.in_out_option(
    "--alignments",
    help="After each translation, print the word alignment, tab-separated: 0-0 1-2 links the first"
    " words of both lines, and the second word of the source with the third of the translation.",
)
@shared.in_out_option(
    "--format NAME",
    "format_",
    type=click.Choice(["text", "html", *FORMATS], case_sensitive=False),
    help="Format of input and output: text, html, or the ending of a document, such as docx or po."
    " Tags, formatting and placeholders such as {name} keep their places. Default: by the ending"
    " of the input, else text.",
)
@shared.in_out_option(
    "--all", "everything", help="Of PO and XLIFF, translate also what has a translation already."
)
@shared.in_out_option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one, or each line as a whole. Default: one by"
    " one if fewer than 10 % of the training lines have several, or nothing is known of them.",
)
@shared.in_out_option(
    "--placeholders/--no-placeholders",
    "keeps_placeholders",
    default=True,
    help="In text, put placeholders such as {name} and addresses into a translation that lacks"
    " them, or leave it as it is. Default: put them in.",
)
@shared.in_out_option(
    "--copy/--no-copy",
    "copy_numbers",
    default=None,
    help="Copy text without letters, such as numbers, and text with addresses and placeholders"
    " only; or translate it too. Default: copy.",
)
@shared.runs_option("several runs are an ensemble")
@shared.language_options
@shared.checkpoint_option
@shared.beam_options
@shared.search_option(
    "--min-length N", type=click.IntRange(0), help="Minimum output length in subwords."
)
@shared.search_option("--max-length N", help="Maximum output length in subwords.")
@shared.search_option(
    "--no-repeat-ngram N",
    type=click.IntRange(0),
    help="Block repeated n-grams of this size, in subwords. 0: off.",
)
@shared.search_option(
    "--target-prefix FILE",
    "prefix_path",
    help="Forced beginnings of the translations: a file with one per line of input.",
)
@shared.search_option(
    "--glossary FILE",
    "glossary_path",
    help="Terms that the translation must contain: a file with a source term, a tab and its target"
    " term on each line.",
)
@check_options
@sampling_option(
    "--sample/--no-sample", default=None, help="Sample translations instead of beam search."
)
@sampling_option(
    "--mbr-samples N",
    type=click.IntRange(0),
    help="Minimum Bayes risk decoding: take N samples, and choose the one with the highest mean"
    " chrF to the others. 0: off.",
)
@sampling_option(
    "--temperature T",
    type=click.FloatRange(0, min_open=True),
    help="Softmax temperature. Below 1: less random.",
)
@sampling_option(
    "--top-k K",
    type=click.IntRange(0),
    help="Sample from the K most probable subwords only. 0: off.",
)
@sampling_option(
    "--top-p P",
    type=click.FloatRange(0, 1, min_open=True),
    help="Nucleus sampling threshold, at most 1: sample from the fewest subwords whose"
    " probabilities sum to P.",
)
@sampling_option(
    "--seed N",
    type=click.IntRange(0, 2**64 - 1),
    help="Random seed. The same seed and line number give the same sample.",
)
@shared.parsing_option(
    "--tokenized",
    help="Of a parser: the input is words separated by spaces, as in the treebank. Default: plain"
    " text, which is split into words.",
)
@shared.well_formed_option
@shared.hardware_options
def translate(
    words: tuple[str, ...],
    run_paths: tuple[Path, ...],
    input_path: Path | None,
    output_path: Path | None,
    shard: tuple[int, int] | None,
    nbest: int | None,
    as_json: bool,
    alignments: bool,
    format_: str | None,
    everything: bool,
    keeps_placeholders: bool,
    prefix_path: Path | None,
    glossary_path: Path | None,
    restart: bool,
    tokenized: bool,
    **decode: Any,
) -> None:
    """Translate text: one line in, one line out, in order. Or a document, such as a .docx or .srt.

    A parser prints the tree of each sentence in brackets.

    With --output, partial results are kept next to the output file until it is complete. To
    resume an interrupted run, run the same command again. With a check, it begins again.

    Options of search and sampling that are not given have the values of the run's configuration.

    \b
    To divide a file among machines, translate its parts and join them:
      mtkit translate --input FILE --shard 1/2 --output part.1
      mtkit translate --input FILE --shard 2/2 --output part.2
      cat part.1 part.2
    """
    refuse_torchrun("mtkit translate", advice="give each process another --shard I/N")
    if words:
        input_path = _input_file(words, input_path)
    shared.keep_few_shapes()
    runs = [shared.open_run(path) for path in run_paths or (None,)]
    wanted = CheckOptions(**{name: decode.pop(name) for name in _CHECKS})
    if not shared.given("below"):
        wanted = replace(wanted, below=max(wanted.below, wanted.reject or 0))
    options = shared.DecodeOptions.parse(**decode)
    _refuse_useless(runs[0], options)
    _check_task(runs[0])
    input_path = None if str(input_path) == "-" else input_path
    output_path = output_of(output_path)
    is_parser = runs[0].manifest.data.task == "parsing"
    format_ = "text" if is_parser else format_of(format_, input_path)
    if format_ != "text":
        of_text = ["nbest", "alignments", "prefix_path", "shard", "keeps_placeholders"]
        of_text += ["as_json"] * (format_ == "html")
        shared.refuse_given(of_text, f"cannot be combined with --format {format_}")
    check_document_options(format_, input_path, output_path, as_json=as_json)
    files = {"--input": input_path or Path("-"), "--target-prefix": prefix_path}
    files |= {"--glossary": glossary_path}
    shared.refuse_stdin_twice(files.values(), advice="; give --input")
    # A document was read before its output is written.
    others = {name: path for name, path in files.items() if name != "--input"}
    is_document = format_ not in ("text", "html")
    check_output(output_path, others if is_document else files, restart=restart, shard=shard)
    files |= {"file of --output": output_path}
    findings_path = checked_file("--findings", wanted.findings_path, files)
    from mtkit.base.text import decode_lines, open_binary, with_format_noted
    from mtkit.check import InputLanguage
    from mtkit.cli.progress import part_with_progress, shown_progress
    from mtkit.translate import IncompleteTranslations

    with ExitStack() as stack:
        document = places = None
        if is_document:
            of_run = runs[0].manifest.data
            document = DocumentLines(
                input_path,
                format_,
                below=wanted.below,
                source=options.others["src_lang"] or of_run.src_lang,
                target=options.others["tgt_lang"] or of_run.tgt_lang,
                everything=everything,
            )
            lines, places = iter(document.lines), document.places_of
        elif input_path is None:
            lines = shared.lines_of(Path("-"))
        else:
            source = stack.enter_context(open_binary(input_path))
            lines = decode_lines(source, name=str(input_path))
        recut: Recut = iter
        if format_ != "text":
            from mtkit.translate import markup_windows as recut
        else:
            lines = with_format_noted(lines)
        prefixes = None if prefix_path is None else list(shared.lines_of(prefix_path))
        if prefixes is not None and prefix_path is not None:
            both = shared.zip_lines(lines, prefixes, paths=(input_path or Path("-"), prefix_path))
            lines = (line for line, _ in both)
        translator = stack.enter_context(
            options.load(runs, glossary=glossary_path, tokenized=tokenized, exact=False)
        )
        language = InputLanguage(runs[0].path, translator.src_lang, translator.tgt_lang)
        log.info("engine: %s", translator.engine)
        gc.freeze()
        gc.enable()  # the program has begun without
        is_typed = input_path is None and document is None and sys.stdin.isatty()
        if is_typed:
            log.info("translating what you type; end with Ctrl-D")
        if document is None:
            part, progress = stack.enter_context(
                part_with_progress(lines, input_path, output_path, shard)
            )
        else:
            part, total = lines, len(document.lines)
            is_wanted = output_path is not None or not sys.stdout.isatty()
            progress = stack.enter_context(
                shown_progress(total, unit=" different segments", is_wanted=is_wanted)
            )
        checks = None
        if shared.given(*_CHECKS):
            checks = stack.enter_context(
                line_checks(
                    runs,
                    translator,
                    replace(wanted, findings_path=findings_path),
                    unit="lines" if format_ == "text" else "segments",
                    places=places,
                )
            )
        line_translator = _LineTranslator(
            translator,
            progress,
            nbest=nbest,
            as_json=as_json,
            aligner=translator.aligner if alignments or format_ != "text" else None,
            format=format_,
            keeps_placeholders=keeps_placeholders and translator.task.name != "parsing",
            prefixes=prefixes,
            doubts=IncompleteTranslations(translator.line_facts, places),
            checks=checks,
            checks_by_line=None if document is None else document.checks,
        )
        stack.callback(_report_repaired, line_translator.repaired)
        only_rows = as_json and output_path is None
        typed = None
        if is_typed and prefixes is None:
            typed = _typed_lines(f"{translator.src_lang or 'source'}> ")
        write_output(
            output_path,
            # Scripts of HTML are in no language, and trees have no words.
            part if format_ == "html" or is_parser else language.read(part),
            line_translator.outputs,
            progress,
            settings=line_translator.settings(runs, shard),
            # The table of findings is of all lines, and parts of an earlier start have none.
            restart=restart or (checks is not None and output_path is not None),
            typed=typed,
            recut=recut,
            join=iter if document is None else document.rows if only_rows else document.joined,
            doubts=line_translator.doubts,
            counted=in_words if document is None else document.counted,
            window_lines=None if document is None else _SAVED_SEGMENTS,
        )
        line_translator.doubts.report()
        if other := language.sentence():
            log.warning("%s", other)
        report_more(len(line_translator.listed))
        if document is not None:
            document.report(with_rows=as_json and not only_rows)


# ---------------------------------------------------------------------------------------------
# Checks before anything is loaded


def _input_file(words: Sequence[str], given: Path | None) -> Path:
    """The file that is given as an argument; an error for text, and for several files."""
    word = words[0]
    # The name of a file that is missing is refused where it is opened, as that of --input.
    is_name = Path(word).suffix != "" and word.split() == [word]
    is_input = word == "-" or (os.path.exists(word) and not os.path.isdir(word))
    if len(words) == 1 and (is_name or is_input):
        if given is not None:
            raise click.UsageError("give one input: FILE or --input FILE")
        return Path(word)
    text = shlex.quote(" ".join(words))
    raise click.UsageError(
        f"{text if len(text) <= 60 else '...'} is not one file that exists; text comes from "
        "standard input, as in echo 'good morning' | mtkit translate"
    )


def _refuse_useless(run: Run, options: shared.DecodeOptions) -> None:
    """Refuse options that do not go with how this run translates."""
    off = {"sample": "--no-sample", "mbr_samples": "--mbr-samples 0"}
    sampler = next((name for name in off if options.setting(run, name)), None)
    if sampler is None:
        sampling = ("temperature", "top_k", "top_p", "seed")
        shared.refuse_given(sampling, "requires --sample or --mbr-samples N")
        return
    why = f"cannot be combined with --{sampler.replace('_', '-')}"
    if sampler not in options.changes:
        why += f", a setting of this run; add {off[sampler]}"
    # Samples come from no beam.
    shared.refuse_given(["glossary_path", "beam_size", "stop"], why)


def _check_task(run: Run) -> None:
    """Refuse options of translations for a parser, and those of a parser for others."""
    if run.manifest.data.task == "parsing":
        of_translations = ["alignments", "split_sentences", "prefix_path", "glossary_path"]
        of_translations += _CHECKS
        if click.get_current_context().params["format_"] not in (None, "text"):
            of_translations.append("format_")
        shared.refuse_given(of_translations, f"is for translations, and {run.path} is a parser")
    else:
        shared.refuse_given(
            ["tokenized", "well_formed_trees"], f"requires a parser, unlike {run.path}"
        )


# ---------------------------------------------------------------------------------------------
# Translating and writing


@dataclass(frozen=True)
class _LineTranslator:
    """Turns windows of lines into what the output has for them.

    `aligner` makes what aligns words, if that is wanted. Of a document, `checks_by_line` takes the
    checks of each line. `repaired` counts the best trees that were repaired and that were not.
    """

    translator: Translator
    progress: Progress
    nbest: int | None
    as_json: bool
    aligner: Callable[[], Aligner] | None
    format: str
    keeps_placeholders: bool
    prefixes: list[str] | None
    doubts: IncompleteTranslations
    checks: LineChecks | None
    checks_by_line: dict[int, dict[str, Any]] | None
    repaired: Counter[bool] = field(default_factory=Counter)
    listed: list[int] = field(default_factory=list)

    def outputs(self, windows: Windows) -> Iterator[tuple[int, bytes]]:
        """The output for each window, with the number of its first line."""
        if self.aligner is not None:
            # From now on the native engine keeps what alignments need.
            self.aligner()
        if self.format != "text":
            yield from self._html(windows)
            return
        n_best = self.nbest or 1
        translated: Iterable[tuple[Window, list[list[Translation]]]]
        translated = self.translator.translate_windows(
            self._given(windows), n_best=n_best, progress=self.progress.advance, doubts=self.doubts
        )
        if self.keeps_placeholders:
            from mtkit.translate import with_placeholders

            translated = with_placeholders(self.translator, translated, n_best=n_best)
        for window, results in translated:
            self.repaired.update(best.repaired for best, *_ in results if best.repaired is not None)
            if self.checks is not None:
                results = self.checks.apply(window.first_line, window.lines, results)
            yield window.first_line, "".join(self._formatted(results, window)).encode()
            # Here the output is written: the next one is asked for.
            self.progress.finish(window.first_line - 1 + len(results))

    def _html(self, windows: Windows) -> Iterator[tuple[int, bytes]]:
        from mtkit.translate import translate_markup

        assert self.aligner is not None
        for first_line, lines in windows:
            self.progress.begin(first_line)
            translated = translate_markup(
                self.translator,
                self.aligner,
                lines,
                doubts=self.doubts,
                review=None if self.checks is None else self._is_kept,
            )
            text = "".join(f"{line}\n" for line in translated)
            if self.format == "html":
                text = Languages(self.translator.src_lang, self.translator.tgt_lang).page(text)
            yield first_line, text.encode()
            self.progress.finish(first_line - 1 + len(translated))

    def _is_kept(self, number: int, text: str, result: str, best: Translation) -> bool:
        """Check the translation of a text in HTML; returns False if it is rejected."""
        from mtkit.translate import markup_text

        assert self.checks is not None
        shown = replace(best, text=markup_text(result).strip())
        self.checks.apply(number, [text], [[shown]])
        checked = self.checks.as_dict(0)
        if "rejected" in checked:
            # The places in findings are in this text.
            checked["rejected_translation"] = shown.text
        if self.checks_by_line is not None:
            self.checks_by_line[number] = checked
        elif doubt := doubt_of(checked, self.checks.verdict.below):
            # A page has no place for them.
            self.listed.append(number)
            if len(self.listed) <= MAX_PRINTED:
                what = "source kept: " if "rejected" in checked else ""
                log.info("line %s: %s%s", f"{number:,}", what, doubt)
        return not checked.get("rejected", False)

    def _given(self, windows: Windows) -> Iterator[Window]:
        from mtkit.translate import Window

        for first_line, lines in windows:
            self.progress.begin(first_line)
            start = first_line - 1
            yield Window(
                first_line, lines, self.prefixes and self.prefixes[start : start + len(lines)]
            )

    def _formatted(self, hypotheses: list[list[Translation]], window: Window) -> Iterator[str]:
        """The lines of the output: objects, rows with a number and a score, or translations."""
        alignments = self._aligned(hypotheses, window)
        for number, translations in enumerate(hypotheses, window.first_line):
            if self.as_json:
                line = {
                    "line": number,
                    "translations": [self._object(t, next(alignments)) for t in translations],
                    "seconds": round(translations[0].seconds, 6),
                }
                if self.checks is not None:
                    line |= self.checks.as_dict(number - window.first_line)
                yield json.dumps(line, ensure_ascii=False) + "\n"
                continue
            for translation in translations:
                row = [] if self.nbest is None else [str(number), f"{translation.score:.6f}"]
                alignment = next(alignments)
                row += [translation.text, *([] if alignment is None else [str(alignment)])]
                yield "\t".join(row) + "\n"

    def _aligned(
        self, hypotheses: list[list[Translation]], window: Window
    ) -> Iterator[Alignment | None]:
        """The word alignment of each translation, one after another."""
        of_lines = zip(window.lines, hypotheses, strict=True)
        given = [
            (number, line, translation)
            for number, (line, translations) in enumerate(of_lines, window.first_line)
            for translation in translations
        ]
        if self.aligner is None or not given:
            return itertools.repeat(None)
        from mtkit.translate import align_by_sentence

        numbers, sources, texts = map(list, zip(*given, strict=True))
        return iter(align_by_sentence(self.aligner(), sources, texts, numbers=numbers))

    def _object(self, translation: Translation, alignment: Alignment | None) -> dict[str, Any]:
        tokens = zip(translation.pieces, translation.log_probs, strict=True)
        return {
            "text": translation.text,
            "score": round(translation.score, 6),
            "log_prob": round(translation.log_prob, 6),
            "finished": translation.finished,
            "tokens": [[piece, round(log_prob, 6)] for piece, log_prob in tokens],
            **({"missing": translation.missing} if self.translator.glossary is not None else {}),
            **({} if translation.repaired is None else {"repaired": translation.repaired}),
            **({} if alignment is None else {"alignment": alignment.as_dict()}),
        }

    def settings(self, runs: Sequence[Run], shard: tuple[int, int] | None) -> dict[str, str]:
        """All that the output depends on besides its input; a resumed run must have the same."""
        from mtkit.run_folder import ALIGNMENT

        translator, glossary = self.translator, self.translator.glossary
        # The files of the heads, because PyTorch, which checks the heads, may not be needed.
        tuned = [run.path / ALIGNMENT for run in runs if self.aligner is not None]
        heads = [_digest(path.read_text(errors="replace")) for path in tuned if path.exists()]
        settings = translator.config.model_dump()
        # The batch size, the place of the search and, in float32, the engine change no translation;
        # the checkpoint is named below.
        for name in ("batch_tokens", "gpu_path", "engine", "average_checkpoints"):
            del settings[name]
        settings["precision"] = translator.precision
        languages = {"--tgt-lang": translator.tgt_lang} if translator.src_prefix else {}
        prefixes = "none" if self.prefixes is None else _digest("\n".join(self.prefixes))
        return {
            "run": ", ".join(map(shared.identity, runs)),
            **languages,
            "checkpoint": translator.checkpoint,
            **{f"decode.{name}": str(value) for name, value in settings.items()},
            "--nbest": str(self.nbest),
            "--json": str(self.as_json),
            "--alignments": " ".join([str(self.aligner is not None), *heads]),
            "--format": self.format,
            "--tokenized": str(translator.task.tokenized),
            "--placeholders": str(self.keeps_placeholders),
            "--target-prefix": prefixes,
            "--glossary": "none" if glossary is None else glossary.digest,
            **({} if self.checks is None else {"--check": self.checks.options.in_words}),
            **({} if shard is None else {"--shard": "{}/{}".format(*shard)}),
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _report_repaired(repaired: Counter[bool]) -> None:
    if count := repaired.total():
        log.info(
            "repaired %s of %s trees (%.1f %%)",
            f"{repaired[True]:,}",
            f"{count:,}",
            100 * repaired[True] / count,
        )


def _typed_lines(prompt: str) -> Iterator[list[str]]:
    """The lines that a person types, until Ctrl-D; each is answered before the next is read."""
    with suppress(ImportError):
        import readline  # noqa: F401 - with it `input` edits lines and remembers earlier ones
    # Bytes that are not UTF-8 must not end the session.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    # In a file or pipe the prompt would be part of the data.
    prompt = prompt if sys.stdout.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        yield [line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")]
        # An empty window: there may be no more lines for a while.
        yield []
