"use strict";
// The page at / of the server: translates what is typed, files and documents. It loads nothing from elsewhere.
(() => {
  const byId = (id) => document.getElementById(id);
  const text = byId("text"), result = byId("result"), mirror = byId("mirror");
  const source = byId("source"), target = byId("target"), terms = byId("terms"), key = byId("key");
  const AUTO = "auto";
  // Characters of a text that has alternatives, of one whose words are linked, of a part of a file.
  const FEW = 1000, SOME = 5000, PART = 5000;
  // Milliseconds that a pointer must rest before the links between words are asked for.
  const REST = 150;
  // Findings that are listed.
  const LISTED = 8;
  // How often a part of a file is sent again if the server is busy.
  const MAX_TRIES = 10;

  let languages = new Map(), settings = {};
  // What is shown: the text it is of, and its translations.
  let shown = null;
  let waiting = 0, running = new AbortController(), linking = new AbortController();

  const nameOf = (code) => languages.get(code)?.name ?? code;
  const count = (value) => value.toLocaleString("en");
  const isLimited = () => settings.charLimit >= 0;
  // Characters as the server counts them; JavaScript counts an emoji as two.
  const lengthOf = (value) => Array.from(value).length;

  // The browser may keep nothing of a page, then reading fails as writing does.
  function stored(storage, name, value) {
    try {
      if (value === undefined) return window[storage].getItem(name);
      window[storage].setItem(name, value);
    } catch {}
    return null;
  }

  // ---- The server

  // What went wrong, in words for a reader; `wait` is seconds after which to try again.
  class Problem extends Error {
    constructor(message, wait = 0) {
      super(message);
      this.wait = wait;
    }
  }

  const GONE = "The server does not answer. Check that it is running and that you are online.";
  const WITHOUT_KEY = "Please write your API key above.";

  function problemOf(status, said, wait) {
    if (status === 403) return new Problem("The server does not know this API key.");
    if (status === 400 && /API key/.test(said)) return new Problem(WITHOUT_KEY);
    if (status === 413) return new Problem(`This is too large for this server: ${said}.`);
    if (status === 429) {
      const why = /queue/.test(said) ? "The server is busy." : "You have sent many texts in a short time.";
      return new Problem(why, wait || 5);
    }
    if (status === 503) return new Problem("The server is busy or the text takes too long.", wait);
    if (status === 502 || status === 504) return new Problem(GONE);
    if (status >= 500) return new Problem("The server could not translate this text.");
    return new Problem(`The server refused this request: ${said.replace(/^Invalid request: /, "")}.`);
  }

  async function ask(path, body, signal) {
    const options = body && (body instanceof FormData ? { method: "POST", body } : {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    let reply, answer = null;
    try {
      reply = await fetch(path, { ...options, signal });
      // A proxy may answer with something else than JSON.
      if (reply.headers.get("content-type")?.includes("json")) answer = await reply.json();
    } catch (error) {
      throw error.name === "AbortError" ? error : new Problem(GONE);
    }
    if (reply.ok && answer) return answer;
    if (reply.ok) throw new Problem(GONE);
    const wait = Math.min(Number(reply.headers.get("retry-after")) || 0, 3600);
    throw problemOf(reply.status, answer?.error ?? reply.statusText, wait);
  }

  // The request for a text with what the reader has chosen.
  function order(q, more) {
    const { glossary } = readTerms();
    return {
      q, source: source.value, target: target.value, format: "text",
      ...(key.value && { api_key: key.value }),
      ...(Object.keys(glossary).length && { glossary }),
      ...more,
    };
  }

  // ---- Messages

  // Write a message; a screen reader says the same one once.
  function put(id, message) {
    if (byId(id).textContent !== message) byId(id).textContent = message;
  }

  // Show what is wrong; `isLasting` if another try would not help.
  function complain(message, isLasting = false) {
    put("problem", message);
    byId("again").hidden = !message || isLasting;
  }

  function say(message) {
    byId("said").textContent = message;
  }

  // ---- Languages

  function fill(select, options, wanted) {
    select.replaceChildren(...options.map(([code, name]) => new Option(name, code)));
    if (options.some(([code]) => code === wanted)) select.value = wanted;
  }

  const targetsOf = (code) => (languages.get(code)?.targets ?? []).filter((one) => one !== code);

  function fillTargets(wanted) {
    const sources = source.value === AUTO ? [...languages.keys()] : [source.value];
    const codes = new Set(sources.flatMap(targetsOf));
    const names = [...codes].map((code) => [code, nameOf(code)]);
    fill(target, names.sort((a, b) => a[1].localeCompare(b[1], "en")), wanted);
  }

  // The source language that was chosen or found; empty if there is none yet.
  const sourceNow = () => (source.value === AUTO ? shown?.detected?.language ?? "" : source.value);

  function showLanguages() {
    const found = sourceNow();
    text.lang = found;
    byId("swap").disabled = !found || !targetsOf(target.value).includes(found);
    const detected = source.value === AUTO && shown?.detected;
    byId("detected").textContent = !detected ? ""
      : !detected.confidence ? "Language: not found"
      : detected.language === target.value ? `The text is already in ${nameOf(detected.language)}.`
      : `Language: ${detected.confidence < 50 ? "perhaps " : ""}${nameOf(detected.language)} `
        + `(${Math.round(detected.confidence)}%)`;
  }

  function languagesChanged() {
    stored("localStorage", "mtkit-languages", `${source.value} ${target.value}`);
    showLanguages();
    translateNow();
  }

  function swap() {
    const [from, to] = [sourceNow(), target.value];
    const found = shown?.text === text.value && shown.choices[shown.chosen];
    source.value = to;
    fillTargets(from);
    if (found) text.value = found.text;
    // Terms have a direction too.
    terms.value = terms.value.replace(/^([^=\t\n]+?)[ ]*[=\t][ ]*([^=\t\n]+)$/gm, "$2 = $1");
    termsChanged();
    textChanged();
    languagesChanged();
    say(`From ${nameOf(to)} to ${nameOf(from)}`);
  }

  // ---- Terms

  // The terms; `problem` names the first line that is none.
  function readTerms() {
    const glossary = {};
    let problem = "";
    for (const [number, line] of terms.value.split("\n").entries()) {
      if (!line.trim()) continue;
      const sides = line.split(line.includes("\t") ? "\t" : "=").map((side) => side.trim());
      if (sides.length === 2 && sides[0] && sides[1]) glossary[sides[0]] = sides[1];
      else problem ||= `Line ${number + 1} is not used: write it as term = translation.`;
    }
    return { glossary, problem };
  }

  function termsChanged() {
    const { glossary, problem } = readTerms(), number = Object.keys(glossary).length;
    byId("terms-summary").textContent = number ? `Terms (${number})` : "Terms";
    byId("terms-problem").textContent = problem;
    terms.setAttribute("aria-invalid", Boolean(problem));
  }

  // ---- Translation of what is typed

  function textChanged() {
    const length = lengthOf(text.value);
    byId("count").textContent = isLimited()
      ? `${count(length)} of ${count(settings.charLimit)} characters` : `${count(length)} characters`;
    byId("clear").disabled = !text.value;
    result.classList.toggle("old", Boolean(shown));
    // A line end at the end of the text needs something behind it to have a height.
    mirror.textContent = `${text.value}\u200b`;
    words.source = null;
    look(null);
  }

  // What was asked for is no longer wanted.
  function cancel() {
    clearTimeout(waiting);
    running.abort();
    linking.abort();
  }

  function translateSoon(milliseconds) {
    cancel();
    waiting = setTimeout(translateNow, milliseconds);
  }

  async function translateNow() {
    cancel();
    if (!languages.size) return;
    running = new AbortController();
    const { signal } = running, q = text.value, length = lengthOf(q);
    byId("busy").textContent = "";
    if (!q.trim() || !target.value) {
      complain("");
      show(null);
      return;
    }
    if (isLimited() && length > settings.charLimit) {
      const limit = count(settings.charLimit);
      complain(`The text has ${count(length)} characters. This server takes ${limit} at a time. `
        + "A longer text can be translated as a file.", true);
      return;
    }
    if (settings.keyRequired && !key.value) {
      complain(WITHOUT_KEY, true);
      return;
    }
    const body = order(q, {
      ...(length <= FEW && settings.alternatives && { alternatives: settings.alternatives }),
      ...(canCheck() && { check: true }),
    });
    byId("busy").textContent = "Translating…";
    try {
      const answer = await ask("translate", body, signal);
      if (signal.aborted) return;
      const texts = [answer.translatedText, ...(answer.alternatives ?? [])];
      complain("");
      show({
        text: q, body, chosen: 0, detected: answer.detectedLanguage,
        choices: texts.map((one) => ({ text: one, links: null })),
        checks: { findings: [], verdict: [], ...answer, confidence: answer.confidence ?? null },
      });
    } catch (error) {
      if (signal.aborted) return;
      const { message, wait } = error;
      if (wait) waiting = setTimeout(translateNow, 1000 * wait);
      complain(wait ? `${message} The page tries again in ${wait} s.` : message);
    }
    byId("busy").textContent = "";
  }

  function show(found) {
    shown = found;
    result.lang = target.value;
    result.classList.remove("old");
    showResult("polite");
    showChoices();
    showLanguages();
  }

  // The chosen translation; `live` is how a screen reader says it.
  function showResult(live) {
    const chosen = shown?.choices[shown.chosen].text ?? "";
    result.setAttribute("aria-live", live);
    words.target = spanned(result, chosen);
    byId("copy").disabled = !chosen;
    showChecks();
    look(null);
  }

  // Whether the server can check the translations of every direction that may be meant.
  function canCheck() {
    const sources = source.value !== AUTO ? [source.value]
      : [...languages.keys()].filter((one) => targetsOf(one).includes(target.value));
    return sources.every((one) =>
      settings.checks?.some(([from, to]) => from === one && to === target.value));
  }

  // What the checks say of the first translation; the others are not checked.
  function showChecks() {
    const isOther = Boolean(shown?.chosen), found = isOther ? [] : shown?.checks.findings ?? [];
    const confidence = shown?.checks.confidence ?? null;
    put("confidence", confidence === null ? "" : isOther ? "Only the first translation is checked."
      : `Confidence: ${Math.round(confidence)} of 100. It is a guess.`);
    put("verdict", isOther ? "" : (shown?.checks.verdict ?? [])
      .map((said) => `${said[0].toUpperCase()}${said.slice(1)}.`).join(" "));
    byId("findings").replaceChildren(...found.slice(0, LISTED).map(({ kind, reason }) => {
      const item = document.createElement("li"), name = document.createElement("b");
      name.textContent = kind;
      item.append(name, `: ${reason}`);
      return item;
    }));
    if (found.length > LISTED) {
      const item = document.createElement("li");
      item.textContent = `${count(found.length - LISTED)} more`;
      byId("findings").append(item);
    }
  }

  function showChoices() {
    const choices = shown?.choices ?? [];
    byId("choices").hidden = choices.length < 2;
    byId("choice-list").lang = target.value;
    byId("choice-list").replaceChildren(...choices.map((choice, number) => {
      const label = document.createElement("label"), radio = document.createElement("input");
      const content = document.createElement("span");
      Object.assign(radio, { type: "radio", name: "choice", checked: number === shown.chosen });
      radio.addEventListener("change", () => {
        shown.chosen = number;
        // The screen reader has said the name of the choice, which is the translation.
        showResult("off");
      });
      content.textContent = choice.text;
      label.append(radio, content);
      return label;
    }));
  }

  async function copy() {
    const chosen = shown.choices[shown.chosen].text;
    try {
      await navigator.clipboard.writeText(chosen);
    } catch {
      // Without HTTPS there is no clipboard but this one.
      getSelection().selectAllChildren(result);
      if (!document.execCommand("copy")) return;
    }
    say("");
    say("Copied");
    byId("busy").textContent = "Copied";
  }

  // ---- Links between words

  // The words of both sides with their elements; null where they are not marked.
  const words = { source: null, target: null };
  const OTHER = { source: "target", target: "source" };
  let looking = null, resting = 0, isSpoken = false;

  // Put a text into an element, each word in an element of its own if the text is not long.
  function spanned(place, value) {
    if (value.length > SOME) {
      place.textContent = value;
      return null;
    }
    const found = [], nodes = [];
    let end = 0;
    for (const match of value.matchAll(/\S+/g)) {
      const element = document.createElement("span");
      element.textContent = match[0];
      nodes.push(value.slice(end, match.index), element);
      end = match.index + match[0].length;
      found.push({ start: match.index, end, element });
    }
    nodes.push(value.slice(end));
    if (place === mirror) nodes.push("\u200b");
    place.replaceChildren(...nodes);
    return found;
  }

  // The places of characters in a text of JavaScript, by their numbers.
  function placesOf(value) {
    const places = [0];
    for (const character of value) places.push(places.at(-1) + character.length);
    return places;
  }

  function linksOf(pairs, value, translation) {
    const from = placesOf(value), to = placesOf(translation);
    return pairs.map(([[a, b], [c, d]]) => ({
      source: { start: from[a], end: from[b] }, target: { start: to[c], end: to[d] },
    }));
  }

  // Whether the words of what is shown can be marked: it is of the text, and neither is long.
  const canLink = () => text.value === shown?.text && text.value.length <= SOME && words.target?.length;

  // Ask for the links of what is shown, once.
  async function loadLinks() {
    if (!canLink() || shown.asked) return;
    const of = shown;
    of.asked = true;
    linking = new AbortController();
    try {
      const answer = await ask("translate", { ...of.body, check: false, alignments: true }, linking.signal);
      const pairs = [answer.alignments, ...(answer.alternativeAlignments ?? [])];
      const texts = [answer.translatedText, ...(answer.alternatives ?? [])];
      of.choices.forEach((choice, number) => {
        if (texts[number] !== choice.text) return;
        choice.links = linksOf(pairs[number] ?? [], of.text, choice.text);
      });
      if (of === shown) look(looking);
    } catch {
      // The page is useful without links.
    }
  }

  const meet = (one, other) => one.start < other.end && other.start < one.end;

  // Mark a word and the words of the other side that belong to it. `word` has a side and the number
  // of the word there.
  function look(word) {
    looking = word;
    for (const side of [words.source, words.target]) {
      for (const { element } of side ?? []) element.classList.remove("marked");
    }
    const links = shown?.choices[shown.chosen].links;
    if (!word || !links || !canLink()) {
      byId("words").textContent = canLink()
        ? "Point at a word to see which words belong together, or move with the arrow keys." : "";
      return;
    }
    words.source ??= spanned(mirror, text.value);
    const { side } = word, own = words[side]?.[word.number];
    if (!own) return;
    const partners = words[OTHER[side]].filter((one) => links.some(
      (link) => meet(link[side], own) && meet(link[OTHER[side]], one)));
    for (const { element } of [own, ...partners]) element.classList.add("marked");
    describe(side, own, partners);
  }

  // A word without the punctuation around it.
  const bare = (word) => word.replace(/^\p{P}+(?=[^\p{P}])|(?<=[^\p{P}])\p{P}+$/gu, "");

  function describe(side, own, partners) {
    const quoted = (list, of) => {
      const name = document.createElement("bdi");
      name.lang = of === "source" ? text.lang : result.lang;
      name.textContent = list.map(({ element }) => bare(element.textContent)).join(" … ");
      return ["“", name, "”"];
    };
    const verb = side === "source" ? " is translated by " : " translates ";
    byId("words").replaceChildren(...quoted([own], side), ...(partners.length
      ? [verb, ...quoted(partners, OTHER[side])] : [" belongs to no single word"]), ".");
    if (isSpoken) say(byId("words").textContent);
  }

  // Look at a word, and ask for links if there are none yet and the pointer rests. A screen reader
  // says what is found with the keyboard.
  function lookSoon(word, byKeyboard = false) {
    isSpoken = byKeyboard;
    if (word?.side === looking?.side && word?.number === looking?.number) return;
    look(word);
    clearTimeout(resting);
    if (word) resting = setTimeout(loadLinks, REST);
  }

  const wordAt = (side, test) => {
    const number = words[side]?.findIndex(test) ?? -1;
    return number < 0 ? null : { side, number };
  };

  function lookInText(test, byKeyboard = false) {
    if (!canLink()) return;
    words.source ??= spanned(mirror, text.value);
    lookSoon(wordAt("source", test), byKeyboard);
  }

  function lookAtCaret(byKeyboard) {
    const caret = text.selectionStart;
    lookInText(({ start, end }) => start <= caret && caret <= end, byKeyboard);
  }

  function listenToWords() {
    result.addEventListener("pointerover", ({ target: element }) =>
      lookSoon(wordAt("target", (word) => word.element === element)));
    text.addEventListener("pointermove", ({ clientX, clientY }) => {
      // The words are behind the field.
      const below = document.elementsFromPoint(clientX, clientY);
      lookInText(({ element }) => below.includes(element));
    });
    for (const [side, place] of [["source", text], ["target", result]]) {
      place.addEventListener("pointerleave", ({ pointerType }) => {
        // A finger leaves at once.
        if (pointerType === "mouse") lookSoon(null);
      });
      place.addEventListener("blur", () => {
        if (looking?.side === side) lookSoon(null);
      });
    }
    text.addEventListener("keyup", ({ key: name }) => {
      if (/^(Arrow|Home|End)/.test(name)) lookAtCaret(true);
    });
    text.addEventListener("click", () => lookAtCaret(false));
    result.addEventListener("keydown", (event) => {
      const last = (words.target?.length ?? 0) - 1;
      if (last < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
      const now = looking?.side === "target" ? looking.number : null;
      const back = result.matches(":dir(rtl)") ? "ArrowRight" : "ArrowLeft";
      const number = {
        ArrowRight: now === null ? 0 : now + (back === "ArrowRight" ? -1 : 1),
        ArrowLeft: now === null ? 0 : now + (back === "ArrowLeft" ? -1 : 1),
        Home: 0, End: last,
      }[event.key];
      if (event.key === "Escape") lookSoon(null);
      if (number === undefined) return;
      event.preventDefault();
      const word = { side: "target", number: Math.min(Math.max(number, 0), last) };
      lookSoon(word, true);
      words.target[word.number].element.scrollIntoView({ block: "nearest" });
    });
  }

  // ---- Files

  let filing = null, address = "";

  // The text of a file; a mark at its beginning says which UTF it is.
  async function readFile(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const marks = { "255,254": "utf-16le", "254,255": "utf-16be" };
    try {
      return new TextDecoder(marks[bytes.slice(0, 2)] ?? "utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new Problem("The file is not text in UTF-8. Save it in this encoding, and choose it again.");
    }
  }

  // The text in parts of whole lines.
  function partsOf(content) {
    const most = isLimited() ? Math.min(PART, settings.charLimit) : PART, parts = [];
    let part = [], size = 0;
    for (const [number, line] of content.split("\n").entries()) {
      const length = lengthOf(line) + 1;
      if (isLimited() && length - 1 > settings.charLimit) {
        throw new Problem(`Line ${count(number + 1)} has ${count(length - 1)} characters. `
          + `This server takes ${count(settings.charLimit)}.`);
      }
      if (part.length && size + length - 1 > most) {
        parts.push(part.join("\n"));
        [part, size] = [[], 0];
      }
      part.push(line);
      size += length;
    }
    return [...parts, part.join("\n")];
  }

  const pause = (seconds, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("", "AbortError"));
    }, { once: true });
  });

  async function askUntilDone(path, body, signal) {
    for (let tries = 1; ; tries++) {
      try {
        return await ask(path, body, signal);
      } catch (error) {
        if (!error.wait || tries === MAX_TRIES) throw error;
        put("file-state", `${error.message} It goes on in ${error.wait} s.`);
        await pause(error.wait, signal);
      }
    }
  }

  // The endings of documents, which the server translates as a whole.
  const documents = () => settings.supportedFilesFormat.filter((ending) => ending !== ".txt");
  const isDocument = (file) =>
    documents().some((ending) => file.name.toLowerCase().endsWith(ending));

  async function translateDocument(file, signal) {
    const wanted = order(undefined, {}), form = new FormData();
    wanted.glossary &&= JSON.stringify(wanted.glossary);
    for (const name of ["source", "target", "api_key", "glossary"]) {
      if (wanted[name]) form.append(name, wanted[name]);
    }
    form.append("file", file);
    byId("file-progress").removeAttribute("value");
    put("file-state", `Translating ${file.name}…`);
    const answer = await askUntilDone("translate_file", form, signal);
    // The page may be in a folder of a proxy, of which the server does not know.
    offer(file, `download_file/${answer.translatedFileUrl.split("/").pop()}`, wanted.target,
      ["The server deletes the result in a few minutes.", ...(answer.notes ?? [])]);
  }

  async function translateFile(file, signal) {
    const progress = byId("file-progress"), wanted = order("", {}), translated = [];
    const parts = partsOf(await readFile(file));
    for (const [number, part] of parts.entries()) {
      progress.value = number / parts.length;
      put("file-state", `Translating ${file.name}…`);
      if (!part.trim()) {
        translated.push(part);
        continue;
      }
      const answer = await askUntilDone("translate", { ...wanted, q: part }, signal);
      translated.push(answer.translatedText);
      // A file is in one language.
      if (answer.detectedLanguage?.confidence) wanted.source = answer.detectedLanguage.language;
    }
    URL.revokeObjectURL(address);
    address = URL.createObjectURL(new Blob([translated.join("\n")], { type: "text/plain;charset=utf-8" }));
    offer(file, address, wanted.target, []);
  }

  // Offer the translation of a file, with lines about it.
  function offer(file, href, language, notes) {
    const download = file.name.replace(/(\.[^.]*)?$/, (ending) => `.${language}${ending}`);
    Object.assign(byId("download"), { href, download, textContent: `Download ${download}` });
    byId("file-done").hidden = false;
    put("file-state", [`${file.name} is translated into ${nameOf(language)}.`, ...notes].join("\n"));
  }

  // The button starts the translation of a file, and stops it.
  async function startFile() {
    if (filing) {
      filing.abort();
      return;
    }
    const button = byId("file-start");
    filing = new AbortController();
    const { signal } = filing;
    byId("file-done").hidden = true;
    byId("file-progress").hidden = false;
    button.textContent = "Stop";
    try {
      if (settings.keyRequired && !key.value) throw new Problem(WITHOUT_KEY);
      const [file] = byId("file").files;
      await (isDocument(file) ? translateDocument : translateFile)(file, signal);
    } catch (error) {
      const message = signal.aborted ? "Stopped." : error instanceof Problem ? error.message
        : "The file cannot be read.";
      put("file-state", message);
    }
    byId("file-progress").hidden = true;
    button.textContent = "Translate file";
    button.disabled = !byId("file").files.length;
    filing = null;
  }

  function fileChosen() {
    const { files } = byId("file");
    byId("file-start").disabled = !files.length && !filing;
    put("file-state", files.length > 1 ? `Only the first file is taken: ${files[0].name}` : "");
    byId("file-done").hidden = true;
  }

  // A file that is dropped anywhere on the page is chosen; the browser would leave the page.
  function listenToDrops() {
    const box = byId("file-box"), isFile = (event) => event.dataTransfer.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      box.classList.add("over");
    });
    document.addEventListener("dragleave", () => box.classList.remove("over"));
    document.addEventListener("drop", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      box.classList.remove("over");
      if (filing) return;
      byId("file").files = event.dataTransfer.files;
      fileChosen();
      byId("file-start").focus();
    });
  }

  // ---- The beginning

  async function start() {
    complain("");
    try {
      const [list, found] = await Promise.all([ask("languages"), ask("frontend/settings")]);
      settings = found;
      languages = new Map(list.map((one) => [one.code, one]));
    } catch (error) {
      complain(error.message);
      return;
    }
    const sources = [...languages.keys()].filter((code) => targetsOf(code).length);
    const options = sources.map((code) => [code, nameOf(code)]);
    if (sources.length > 1) options.unshift([AUTO, "Detect language"]);
    const usual = [settings.language.source.code, settings.language.target.code];
    const kept = (stored("localStorage", "mtkit-languages") ?? "").split(" ");
    const [from, to] = options.some(([code]) => code === kept[0]) ? kept : usual;
    fill(source, options, from);
    fillTargets(to);
    byId("file").accept = [...settings.supportedFilesFormat, "text/plain"].join(",");
    byId("file-kinds").textContent =
      `Documents: ${documents().join(", ")}. Text files: .txt in UTF-8 or UTF-16.`;
    byId("key-box").hidden = !settings.keyRequired;
    if (settings.keyRequired) key.value = stored("sessionStorage", "mtkit-key") ?? "";
    textChanged();
    termsChanged();
    translateNow();
  }

  text.addEventListener("input", () => {
    textChanged();
    translateSoon(settings.frontendTimeout);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translateNow();
  });
  source.addEventListener("change", () => {
    fillTargets(target.value);
    languagesChanged();
  });
  target.addEventListener("change", languagesChanged);
  terms.addEventListener("input", () => {
    termsChanged();
    translateSoon(2 * settings.frontendTimeout);
  });
  byId("key-box").addEventListener("submit", (event) => event.preventDefault());
  key.addEventListener("change", () => {
    stored("sessionStorage", "mtkit-key", key.value);
    translateNow();
  });
  byId("swap").addEventListener("click", swap);
  byId("clear").addEventListener("click", () => {
    text.value = "";
    textChanged();
    translateNow();
    text.focus();
  });
  byId("copy").addEventListener("click", copy);
  byId("again").addEventListener("click", () => (languages.size ? translateNow() : start()));
  byId("file").addEventListener("change", fileChosen);
  byId("file-start").addEventListener("click", startFile);
  listenToWords();
  listenToDrops();
  start();
})();
