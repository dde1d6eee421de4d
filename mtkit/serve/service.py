"""What both APIs do: check who asks and for how much, find the direction, translate, detect."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mtkit.base.copied import has_letters
from mtkit.base.errors import MtkitError
from mtkit.base.language_id import find_code, language_name
from mtkit.check import BELOW, Checked, Checker
from mtkit.serve import languages
from mtkit.serve.access import Access, DocumentTurns
from mtkit.serve.bodies import ClientFile
from mtkit.serve.counters import Metrics
from mtkit.serve.directions import Direction, Directions
from mtkit.serve.http_errors import RequestError, invalid
from mtkit.serve.languages import Detected
from mtkit.serve.scheduler import Scheduler
from mtkit.serve.text_quality import check_texts
from mtkit.serve.texts import Format, TranslatedText, WordLink, link_words, translate_texts
from mtkit.translate import Glossary, MarkupRules, Translator, markup_text

log = logging.getLogger(__name__)

# Text that is in the target language with this confidence is not translated.
_SURE = 80.0

# Characters that count as a subword before a text is split into its own.
_CHARACTERS = 4

# Documents that are in memory and translated at a time; the uploads of others wait.
_DOCUMENTS = 16
# Bytes of results that are kept, for each byte that an upload may have.
_KEPT = 20


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Of a text its characters, of a request its texts, all their lines, the alternatives beside the
    best translation, the terms of a glossary and their characters, and bytes: `file_bytes` with a
    document. Its head and its body must come within `body_seconds`; within `seconds` it must be
    translated, and a document sent, which can be fetched for `kept_seconds`. `queue_tokens` may
    wait, and `batch_tokens` are decoded at a time. Lines are counted whose confidence is `below`.
    """

    characters: int = 50_000
    texts: int = 100
    lines: int = 10_000
    alternatives: int = 3
    terms: int = 1000
    term_characters: int = 200
    body_bytes: int = 2**20
    body_seconds: float = 20.0
    seconds: float = 60.0
    file_bytes: int = 10 * 2**20
    kept_seconds: float = 300.0
    queue_tokens: int = 100_000
    batch_tokens: int = 1024
    below: float = BELOW


class Caller(NamedTuple):
    """The key of a client (empty for none), its address, and the URL of this server."""

    key: str
    address: str
    server: str = ""


@dataclass(frozen=True)
class TranslationRequest:
    """Texts to translate, between codes as the client writes them; the source may be empty.

    Wanted are so many alternatives beside the best translation, links between words, and checks.
    `rules` is how HTML or XML is read; of plain text, the line ends that end a sentence. With
    `splits`, the sentences of a line may be translated one by one. The parts of a document wait in
    the queue one by one.
    """

    texts: Sequence[str]
    source: str
    target: str
    form: Format = "text"
    alternatives: int = 0
    glossary: Mapping[str, str] = field(default_factory=dict)
    with_links: bool = False
    is_checked: bool = False
    rules: MarkupRules = field(default_factory=MarkupRules)
    splits: bool = True
    is_document: bool = False


class TranslationResult(NamedTuple):
    """The translations of each text, the best first; the source language, and how sure it is.

    The links between words are those of each translation; none if they are not wanted, and of HTML.
    The checks are those of the best translation of each text, if they are wanted.
    """

    translations: list[list[TranslatedText]]
    source: Detected
    links: list[list[list[WordLink]]]
    checks: list[Checked]


class Service:
    """Translates for clients. Its methods are called in the event loop."""

    def __init__(self, directions: Directions, limits: Limits, access: Access) -> None:
        self.directions, self.limits, self.access = directions, limits, access
        self.scheduler = Scheduler(
            directions.threads, limits.queue_tokens, batch_tokens=limits.batch_tokens
        )
        self.metrics = Metrics(self.scheduler)
        # Translated documents, by names that cannot be guessed.
        self.results: dict[str, ClientFile] = {}
        # A part of a document ends when it has this many characters, with the segment that reaches
        # them. Without long segments, the parts of all documents fill half of the queue.
        self.max_part = _CHARACTERS * limits.queue_tokens // (2 * _DOCUMENTS)
        self.document_turns = DocumentTurns(_DOCUMENTS, limits.seconds)

    def keep(self, file: ClientFile) -> str:
        """Keep a result for a while, and return its name; of too many bytes, the oldest go."""
        name, results = f"{secrets.token_urlsafe(32)}.{file.ending}", self.results
        results[name] = file
        while sum(len(kept.data) for kept in results.values()) > _KEPT * self.limits.file_bytes:
            del results[next(iter(results))]
        asyncio.get_running_loop().call_later(self.limits.kept_seconds, results.pop, name, None)
        return name

    def admit(self, caller: Caller, cost: int = 1) -> str:
        """The key of a caller as `Access.key_hash` gives it; texts to translate count for the rate.

        More than a request may have count as that many, because it will be refused. RequestError if
        the key is missing or wrong, or the caller has asked too often.
        """
        key_hash = self.access.key_hash(caller.key)
        if key_hash is None:
            if caller.key:
                raise RequestError(403, "Invalid API key")
            raise RequestError(400, "Please contact the server operator to get an API key")
        cost = min(cost, self.limits.texts)
        if seconds := self.access.wait(key_hash or caller.address, cost):
            limit = f"Slowdown: {self.access.per_minute} per 1 minute"
            raise RequestError(429, limit, retry_after=math.ceil(seconds))
        return key_hash

    async def translate(self, request: TranslationRequest, key_hash: str) -> TranslationResult:
        """Translate texts; RequestError if they are over a limit, or a language is not there."""
        limits = self.limits
        if not request.is_document:
            _check_size(len(request.texts), "text", limits.texts)
            for text in request.texts:
                _check_size(len(text), "text", limits.characters)
        _check_size(sum(text.count("\n") + 1 for text in request.texts), "line", limits.lines)
        if request.alternatives > limits.alternatives:
            raise invalid(f"alternatives parameter must be <= {limits.alternatives}")
        given, target = self.codes(request.source, request.target)
        if given:
            source, is_language = Detected(given, 100.0), True
        else:
            plain = request.texts
            if request.form == "html":
                # Names of tags and attributes are in another language than the text.
                plain = await asyncio.to_thread(
                    lambda: [markup_text(text, request.rules) for text in request.texts]
                )
            source = await self._source(plain, target)
            is_language = bool(source.confidence) or any(map(has_letters, plain))
        characters = sum(map(len, request.texts))
        if not is_language or source.language == target:
            self.access.used[key_hash] += characters
            return TranslationResult(
                [[TranslatedText(text)] for text in request.texts],
                source,
                [[[]]] * len(request.texts),
                [Checked(())] * len(request.texts),
            )
        translator = self.directions.find(source.language, target, splits=request.splits)
        if translator is None:
            src, tgt = (f"{language_name(x)} ({x})" for x in (source.language, target))
            message = f"{tgt} is not available as a target language from {src}"
            raise RequestError(400, message)
        if request.glossary and (translator.config.sample or translator.config.mbr_samples):
            raise invalid(
                "glossary parameter is not possible, because this server samples its translations"
            )
        translations, links, checks = await self._translations(
            translator, request, (source.language, target)
        )
        # Texts that come back as they are count for a key, as in DeepL, but were not translated.
        self.metrics.characters += characters
        self.access.used[key_hash] += characters
        return TranslationResult(translations, source, links, checks)

    async def _checker(self, direction: Direction) -> Checker:
        """What checks the translations of a direction."""
        directions = self.directions
        if direction not in directions.checkers:
            await self.scheduler.in_thread("check", directions.load_checker, direction)
        if direction not in directions.checkers:
            pair = " to ".join(direction)
            raise invalid(f"{pair} cannot be checked on this server")
        return directions.checkers[direction]

    async def detect(self, texts: Sequence[str]) -> list[Detected]:
        """The languages of texts, at most three, the most probable first.

        RequestError if the texts are too long together, or languages cannot be detected.
        """
        _check_size(sum(map(len, texts)), "text", self.limits.characters)
        detected = await self._detected(texts, self.directions.languages)
        return [language for language in detected if language.confidence][:3] or detected[:1]

    def codes(self, source: str, target: str) -> Direction:
        """The public codes that a client means (else a RequestError); the source may be empty."""
        directions = self.directions
        usual = self._known(source) if source else "", self._known(target)
        if directions.find(*usual):
            return usual
        targets = directions.targets()
        if not source:
            return "", find_code(target, targets) or usual[1]
        # With `en-US` to `de` and `en-GB` to `fr`, `en` may be either of them.
        able = {code for code in targets if find_code(target, [code])}
        public = find_code(source, [code for code, into in directions if into in able])
        best = public and find_code(target, directions.targets(public))
        return (public, best) if public and best else usual

    def _known(self, code: str) -> str:
        """The public code that a client means."""
        public = find_code(code, self.directions.languages)
        if public is None:
            raise RequestError(400, f"{code[:100]} is not supported")
        return public

    async def _source(self, plain: Sequence[str], target: str) -> Detected:
        """The language of texts without markup, one that can be translated into `target`."""
        directions = self.directions
        able = [code for code in directions.sources if directions.find(code, target)]
        detected = await self._detected(
            plain, list(dict.fromkeys((*(able or directions.sources), target)))
        )
        # Short texts are often found in a wrong language.
        is_unsure = detected[0].language == target and detected[0].confidence < _SURE
        return detected[1 if is_unsure and len(detected) > 1 else 0]

    def _glossary(self, terms: Mapping[str, str]) -> Glossary:
        limits = self.limits
        longest, most = max(map(len, (*terms, *terms.values()))), limits.term_characters
        if len(terms) > limits.terms:
            raise RequestError(400, f"the glossary has more than {limits.terms} terms")
        if longest > most:
            raise RequestError(400, f"a term of the glossary has more than {most} characters")
        try:
            return Glossary(terms)
        except MtkitError as error:
            raise invalid(f"{error}") from None

    async def _detected(self, texts: Sequence[str], codes: Sequence[str]) -> list[Detected]:
        try:
            return await asyncio.to_thread(languages.detect, texts, codes)
        except OSError as error:
            log.error("languages cannot be detected: %s", error.strerror)
            raise RequestError(500, "languages cannot be detected") from None

    async def _translations(
        self, translator: Translator, request: TranslationRequest, direction: Direction
    ) -> tuple[list[list[TranslatedText]], list[list[list[WordLink]]], list[Checked]]:
        limits, scheduler = self.limits, self.scheduler
        groups = [[text] for text in request.texts] if request.is_document else [request.texts]
        texts = list[list[TranslatedText]]()
        try:
            # Before the texts are split into subwords, their number is not known.
            largest = max((sum(map(len, group)) for group in groups), default=0)
            scheduler.check(largest / _CHARACTERS)
            async with asyncio.timeout(limits.seconds):
                checker = await self._checker(direction) if request.is_checked else None
                if request.glossary:
                    # A large one takes a fifth of a second.
                    glossary = await asyncio.to_thread(self._glossary, request.glossary)
                    # The first one loads PyTorch.
                    vary = functools.partial(translator.variant, glossary=glossary)
                    translator = await scheduler.in_thread("torch", vary)
                with scheduler.request(translator, request.alternatives + 1) as queued:
                    for group in groups:
                        texts += await translate_texts(
                            scheduler, queued, group, request.form, request.rules
                        )
                links: list[list[list[WordLink]]] = [[[] for _ in of_text] for of_text in texts]
                if request.with_links:
                    links = await link_words(scheduler, translator, texts)
                best = [translation for translation, *_ in texts]
                checks: list[Checked] = []
                if checker:
                    checks = await check_texts(scheduler, checker, best, below=limits.below)
                return texts, links, checks
        except TimeoutError:
            # No Retry-After, because the same text would take as long again.
            message = f"the translation took longer than {limits.seconds:g} s"
            raise RequestError(503, message) from None
        except MtkitError as error:
            # What is wrong with the request was found above, so this is about the server: the
            # message has no text of the user, and may have paths.
            log.error("a text was not translated: %s", error)
            raise RequestError(500, "the text cannot be translated") from None


def _check_size(size: int, unit: str, limit: int) -> None:
    if size > limit:
        raise invalid(f"request ({size}) exceeds {unit} limit ({limit})")
