"use strict";
// Lists the lines that the reader chooses, a page at a time. All data is in the page, and every
// text of it is inserted as text; nothing is loaded.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { systems, sources, references, metrics } = data;
  const sets = references ? [references, ...data.others] : [];
  // One for each line.
  const texts = sources ?? references;
  const PAGE = 50;
  // Longer lines, by the product of their numbers of words, are compared without regard to order.
  const MAX_CELLS = 4e6;
  const byId = (id) => document.getElementById(id);
  const form = byId("choices");
  const isPair = systems.length > 1;
  const isChecked = systems.some((system) => system.found !== null);
  const hasForecast = (one) => systems[one].forecast !== null;
  const kinds = data.kinds.filter((kind) => systems.some((system) =>
    Object.values(system.found ?? {}).some((found) => found.some((one) => one.kind === kind))));
  const number = (value) => value.toLocaleString("en");

  function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    // Lists are not spread: a call has room for some 60,000 arguments, and a text may have more.
    for (const child of children.flat()) made.append(child);
    return made;
  }

  // ---- Words and their differences

  // A run of letters and digits, a letter of a script without spaces, or another character.
  const SOLID = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}" +
    "\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}";
  const WORD = new RegExp(
    `[${SOLID}]\\p{M}*|(?:(?![${SOLID}])[\\p{L}\\p{M}\\p{N}])+|[^\\s]`, "gu");
  const IS_WORD = /^[\p{L}\p{M}\p{N}]/u;
  const wordsOf = (text) =>
    Array.from(text.matchAll(WORD), (match) => ({ text: match[0], start: match.index }));

  // Whether each word of two lines is outside of their longest common subsequence.
  function differences(ones, others) {
    const extra = [ones.map(() => true), others.map(() => true)];
    const match = (i, j) => { extra[0][i] = extra[1][j] = false; };
    let first = 0, n = ones.length, m = others.length;
    while (first < n && first < m && ones[first].text === others[first].text) match(first, first++);
    while (n > first && m > first && ones[n - 1].text === others[m - 1].text) match(--n, --m);
    const rows = n - first, columns = m - first;
    if (rows * columns > MAX_CELLS) {
      const places = new Map();
      for (let j = m - 1; j >= first; j--) {
        const word = others[j].text;
        if (!places.has(word)) places.set(word, []);
        places.get(word).push(j);
      }
      for (let i = first; i < n; i++) {
        const j = places.get(ones[i].text)?.pop();
        if (j !== undefined) match(i, j);
      }
      return extra;
    }
    const width = columns + 1, longest = new Uint16Array((rows + 1) * width);
    for (let i = rows - 1; i >= 0; i--) {
      for (let j = columns - 1; j >= 0; j--) {
        longest[i * width + j] = ones[first + i].text === others[first + j].text
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
      }
    }
    for (let i = 0, j = 0; i < rows && j < columns;) {
      if (ones[first + i].text === others[first + j].text) match(first + i++, first + j++);
      else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
      else j++;
    }
    return extra;
  }

  // The ranges of a text that chosen words take; neighbours are one range.
  function ranges(words, isChosen, className) {
    const found = [];
    words.forEach((word, i) => {
      if (!isChosen[i]) return;
      const end = word.start + word.text.length;
      if (i && isChosen[i - 1]) found.at(-1).end = end;
      else found.push({ start: word.start, end, className });
    });
    return found;
  }

  // The part of a text between two places as nodes; ranges, which may overlap, have their classes.
  function marked(text, found, start = 0, end = text.length) {
    const changes = found.flatMap(({ start: from, end: to, className }) =>
      [[from, className, 1], [to, className, -1]]).sort((a, b) => a[0] - b[0]);
    const depths = new Map(), nodes = [];
    let done = start;
    for (const [place, className, change] of [...changes, [end, "", 0]]) {
      if (place > done) {
        const part = text.slice(done, Math.min(place, end));
        const classes = [...depths.keys()].filter((name) => depths.get(name));
        if (part) nodes.push(classes.length ? element("mark", classes.join(" "), part) : part);
        done = place;
      }
      depths.set(className, (depths.get(className) ?? 0) + change);
    }
    return nodes;
  }

  // The same with a box around each part that findings are about; `spots` are its ranges.
  function boxed(text, found, spots) {
    const nodes = [];
    let done = 0;
    for (const [start, end] of [...spots].sort((a, b) => a[0] - b[0])) {
      if (start < done || end > text.length) continue;
      nodes.push(marked(text, found, done, start),
        element("mark", "spot", marked(text, found, start, end)));
      done = end;
    }
    return [...nodes, marked(text, found, done)].flat();
  }

  // ---- Lines that are chosen

  const findingsOf = (system, line) => system.found?.[line] ?? [];
  // How much better a line is than with the first system, by the chosen metric.
  const scoreOf = (one, line, choice) => systems[one].scores[choice.by][line];
  const gap = (line, choice) => {
    if (!metrics.length) return null;
    const [before, after] = [0, choice.with].map((one) => scoreOf(one, line, choice));
    return before === null || after === null ? null : (after - before) * metrics[choice.by].sign;
  };
  const negative = (value) => (value === null ? null : -value);
  const worstFinding = (line, choice) => {
    const found = searched(choice).flatMap((system) => findingsOf(system, line));
    return found.length ? -Math.max(...found.map((one) => one.severity)) : null;
  };
  const quality = (line, choice) => {
    if (!metrics.length) return null;
    const value = scoreOf(choice.with, line, choice);
    return value === null ? null : value * metrics[choice.by].sign;
  };
  const brief = (one) => {
    const { name } = systems[one];
    return name.length <= 24 ? name : `…${name.slice(-23)}`;
  };
  const of = (one) => (isPair ? ` of ${brief(one)}` : "");
  const forecastOf = (one, line) => systems[one].forecast?.[line] ?? null;

  // The share of the words of both systems that the other one does not have. It is kept, because
  // long lines take long.
  const shares = new Map();
  function otherWords(line, choice) {
    if (!shares.has(choice.with)) shares.set(choice.with, []);
    const kept = shares.get(choice.with);
    if (kept[line] === undefined) {
      const extra = differences(...choice.shown.map((one) => wordsOf(systems[one].texts[line]))).flat();
      kept[line] = extra.length ? extra.filter(Boolean).length / extra.length : 0;
    }
    return kept[line];
  }

  // By name: what is written in the menu, and the value of a line; the lowest is first.
  const ORDERS = {
    worse: [(choice) => `${brief(choice.with)} worse than ${brief(0)}`, gap],
    better: [(choice) => `${brief(choice.with)} better than ${brief(0)}`,
      (line, choice) => negative(gap(line, choice))],
    apart: [() => "largest difference", (line, choice) => {
      const difference = gap(line, choice);
      return difference === null ? null : -Math.abs(difference);
    }],
    words: [() => "most different words", (line, choice) => -otherWords(line, choice)],
    low: [(choice) => `worst ${metrics[choice.by].name}${of(choice.with)}`, quality],
    forecast: [(choice) => `lowest forecast${of(choice.with)}`,
      (line, choice) => forecastOf(choice.with, line)],
    "forecast-first": [() => `lowest forecast${of(0)}`, (line) => forecastOf(0, line)],
    severe: [() => "most severe finding", worstFinding],
    line: [() => "order of the text", (line) => line],
  };
  // Whether an order means something for what is compared.
  const isOffered = {
    worse: () => isPair && metrics.length, better: () => isPair && metrics.length,
    apart: () => isPair && metrics.length, words: () => isPair, low: () => metrics.length,
    forecast: (choice) => hasForecast(choice.with), "forecast-first": () => isPair && hasForecast(0),
    severe: () => isChecked, line: () => true,
  };

  let lowered, lengths;
  const lower = (line) => {
    lowered ??= texts.map((_, i) =>
      [sources?.[i] ?? "", ...sets.map((set) => set[i]), ...systems.map((one) => one.texts[i])]
        .join("\n").toLowerCase());
    return lowered[line];
  };
  const lengthOf = (line) => {
    lengths ??= texts.map((text) =>
      wordsOf(text).filter((word) => IS_WORD.test(word.text)).length);
    return lengths[line];
  };

  // The systems whose findings are chosen from.
  const searched = (choice) =>
    choice.in ? [systems[choice.in]] : choice.shown.map((one) => systems[one]);

  function chosenLines(choice) {
    let lines = texts.map((_, line) => line);
    if (choice.line) lines = lines.filter((line) => line === +choice.line - 1);
    if (choice.kind) {
      const where = searched(choice);
      const isWanted = choice.kind === "any" ? () => true : (one) => one.kind === choice.kind;
      lines = lines.filter((line) => {
        const found = where.flatMap((system) => findingsOf(system, line));
        return choice.kind === "none" ? !found.length : found.some(isWanted);
      });
    }
    if (choice.from) lines = lines.filter((line) => lengthOf(line) >= +choice.from);
    if (choice.to) lines = lines.filter((line) => lengthOf(line) <= +choice.to);
    if (choice.text) {
      const wanted = choice.text.toLowerCase();
      lines = lines.filter((line) => lower(line).includes(wanted));
    }
    const valueOf = ORDERS[choice.order][1];
    // Lines without a value are last; of equal lines the one with the lower score is first.
    const keys = new Map(lines.map((line) => {
      const value = valueOf(line, choice);
      return [line, [value ?? Infinity, quality(line, choice) ?? Infinity]];
    }));
    return lines.sort((a, b) => {
      const [one, other] = [keys.get(a), keys.get(b)];
      const key = one[0] === other[0] ? 1 : 0;
      return one[key] === other[key] ? a - b : one[key] - other[key];
    });
  }

  // ---- What is shown of a line

  // The class of a system: the colour of its marks.
  const classOf = (system, choice) => (system === choice.shown[0] ? "one" : "two");

  // Ranges to mark in each reference and in the text of each system that is shown.
  function marksOf(line, choice) {
    const marks = { references: sets.map(() => []), of: choice.shown.map(() => []) };
    const texts = choice.shown.map((one) => wordsOf(systems[one].texts[line]));
    if (choice.mark === "reference" && sets.some((set) => set[line])) {
      const given = sets.map((set) => wordsOf(set[line]));
      choice.shown.forEach((one, i) => {
        const name = classOf(one, choice);
        // Marked is a word that no reference has.
        let added = texts[i].map(() => true);
        given.forEach((words, set) => {
          const [lacking, extra] = differences(words, texts[i]);
          const more = ranges(words, lacking, `lacks-${name}`);
          marks.references[set] = marks.references[set].concat(more);
          added = added.map((before, word) => before && extra[word]);
        });
        marks.of[i] = ranges(texts[i], added, name);
      });
    } else if (choice.mark === "systems" && isPair) {
      const extra = differences(...texts);
      choice.shown.forEach((one, i) => {
        marks.of[i] = ranges(texts[i], extra[i], classOf(one, choice));
      });
    }
    return marks;
  }

  const spots = (found, side) => found.flatMap((one) => (one[side] ? [one[side]] : []));

  function row(label, nodes, lang, ...more) {
    const shown = element("p", "text", nodes);
    shown.dir = "auto";
    if (lang) shown.lang = lang;
    const cell = element("dd", "", shown, ...more);
    return element("div", "", element("dt", "", ...label), cell);
  }

  function systemRow(one, line, choice, marks) {
    const system = systems[one], found = findingsOf(system, line);
    const forecast = system.forecast?.[line] ?? null;
    const facts = metrics.map(({ name, digits }, i) => {
      const value = system.scores[i][line];
      return value === null ? `no ${name}` : `${name} ${value.toFixed(digits)}`;
    });
    if (forecast !== null) facts.push(`forecast ${forecast}`);
    // A line may break between two of them only.
    const parts = facts.map((fact, i) => element("span", "", fact + (i + 1 < facts.length ? "," : "")));
    const list = element("ul", "found", ...found.map((finding) =>
      element("li", "", element("span", "badge", finding.kind), ` ${finding.reason}`)));
    const label = [element("bdi", "name", system.name), " ", element("span", "score-of",
      ...parts.flatMap((part) => [part, " "]))];
    const nodes = boxed(system.texts[line], marks, spots(found, "tgt"));
    const made = row(label, nodes, data.languages.tgt, ...(found.length ? [list] : []));
    made.className = classOf(one, choice);
    return made;
  }

  function lineItem(line, choice) {
    const marks = marksOf(line, choice);
    const heading = element("h3", "", `Line ${number(line + 1)}`);
    const better = isPair ? gap(line, choice) : null;
    if (isPair && !metrics.length) {
      const share = Math.round(100 * otherWords(line, choice));
      heading.append(element("span", "gap", `${share}% of the words differ`));
    }
    if (better !== null) {
      const { name, sign, digits } = metrics[choice.by];
      const size = Math.abs(better).toFixed(digits), way = Math.sign(better) * sign;
      heading.append(element("span", "gap", `${name} ${["−", "±", "+"][way + 1]}${size}`));
    }
    const rows = element("dl", "");
    if (sources) {
      const found = choice.shown.flatMap((one) => findingsOf(systems[one], line));
      const nodes = boxed(sources[line], [], spots(found, "src"));
      rows.append(row(["Source"], nodes, data.languages.src));
    }
    sets.forEach((set, i) => {
      const label = i ? `Reference ${i + 1}` : "Reference";
      rows.append(row([label], marked(set[line], marks.references[i]), data.languages.tgt));
    });
    choice.shown.forEach((one, i) => rows.append(systemRow(one, line, choice, marks.of[i])));
    return element("li", "line", heading, rows);
  }

  function legend(choice) {
    const sample = (className, text) => element("mark", className, text);
    const parts = [];
    const names = choice.shown.map((one) =>
      sample(classOf(one, choice), element("bdi", "", systems[one].name)));
    const joined = names.flatMap((name, i) => (i ? [" and ", name] : [name]));
    if (choice.mark === "reference") {
      const [lacking, where] = sets.length > 1 ? ["no reference has", "a"]
        : ["the reference does not have", "the"];
      parts.push("Marked in ", ...joined, `: words that ${lacking}. Underlined in ${where}`,
        " reference: ", ...choice.shown.flatMap((one, i) => [
          i ? ", " : "",
          sample(`lacks-${classOf(one, choice)}`, `missing from ${systems[one].name}`)]), ".");
    } else if (choice.mark === "systems" && isPair) {
      parts.push("Marked in ", ...joined, ": words that the other does not have.");
    }
    if (isChecked) parts.push(" ", sample("spot", "In a box"), ": what a finding is about.");
    if (systems.some((_, one) => hasForecast(one))) parts.push(" Forecast: the chrF that the model expects of its translation.");
    byId("legend").replaceChildren(...parts);
  }

  // ---- Choices

  function fillMenus() {
    const fill = (select, options) => {
      const before = select.value;
      select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
      if (options.some(([value]) => value === before)) select.value = before;
    };
    const now = choiceNow();
    fill(form.elements.order, Object.keys(ORDERS).filter((name) => isOffered[name](now))
      .map((name) => [name, ORDERS[name][0](now)]));
    const named = now.shown.map((one) => [String(one), systems[one].name]);
    fill(form.elements.in, [["", "either system"], ...named]);
    const where = searched(choiceNow());
    const counts = new Map();
    let any = 0;
    for (let line = 0; line < texts.length; line++) {
      const here = new Set(where.flatMap((system) =>
        findingsOf(system, line).map((finding) => finding.kind)));
      for (const kind of here) counts.set(kind, (counts.get(kind) ?? 0) + 1);
      if (here.size) any++;
    }
    fill(form.elements.kind, [
      ["", "all lines"], ["any", `any finding (${number(any)})`],
      ["none", `no finding (${number(texts.length - any)})`],
      // The kind that is chosen stays, also where no line has it.
      ...kinds.filter((kind) => counts.has(kind) || kind === now.kind)
        .map((kind) => [kind, `${kind} (${number(counts.get(kind) ?? 0)})`]),
    ]);
  }

  function choiceNow() {
    const choice = Object.fromEntries(new FormData(form));
    choice.with = isPair ? +choice.with : 0;
    choice.by = +choice.by;
    choice.shown = isPair ? [0, choice.with] : [0];
    return choice;
  }

  let lines = [], page = 1;
  const pages = () => Math.max(1, Math.ceil(lines.length / PAGE));

  function choose() {
    lines = chosenLines(choiceNow());
    show(1);
  }

  function show(wanted) {
    page = Math.min(Math.max(1, Math.trunc(wanted) || 1), pages());
    const choice = choiceNow(), first = (page - 1) * PAGE;
    const here = lines.slice(first, first + PAGE);
    byId("list").replaceChildren(...here.map((line) => lineItem(line, choice)));
    byId("list").start = first + 1;
    const all = number(texts.length);
    byId("count").textContent = !lines.length ? `None of ${all} lines is like this.`
      : `${number(first + 1)} to ${number(first + here.length)} of ${number(lines.length)} lines`
        + (lines.length < texts.length ? `, chosen from ${all}` : "");
    byId("page").value = page;
    byId("page").max = pages();
    byId("pages").textContent = number(pages());
    for (const button of document.querySelectorAll("[data-step]")) {
      const next = page + +button.dataset.step;
      button.setAttribute("aria-disabled", next < 1 || next > pages());
    }
    byId("pager-below").hidden = pages() === 1;
    legend(choice);
    writeAddress();
  }

  // The address has what differs from the beginning, as in page.html#kind=loop&text=two
  function writeAddress() {
    const kept = [...new FormData(form)].filter(([name, value]) => value !== initial[name]);
    if (page > 1) kept.push(["page", page]);
    const address = new URLSearchParams(kept).toString();
    history.replaceState(null, "", address ? `#${address}` : location.pathname);
  }

  function readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const [name, value] of wanted) {
      const field = form.elements.namedItem(name);
      if (!field) continue;
      const before = field.value;
      field.value = value;
      if (field.value !== value) field.value = before;
      if (["with", "by", "in"].includes(name)) fillMenus();
    }
    lines = chosenLines(choiceNow());
    show(+wanted.get("page"));
    if (location.hash) goToLines();
  }

  // The next lines are read from the first one on.
  function goToLines() {
    byId("count").focus({ preventScroll: true });
    byId("pager").scrollIntoView();
  }

  const hide = (name, isHidden) => { form.elements[name].closest("label").hidden = isHidden; };
  form.elements.by.replaceChildren(...metrics.map(({ name }, i) => new Option(name, i)));
  hide("by", metrics.length < 2);
  hide("with", systems.length < 3);
  hide("kind", !isChecked);
  hide("in", !isChecked || !isPair);
  if (!isPair) form.elements.mark.options[1].remove();
  if (!references) form.elements.mark.options[0].remove();
  hide("mark", form.elements.mark.options.length < 2);
  fillMenus();
  const initial = Object.fromEntries(new FormData(form));

  form.addEventListener("input", (event) => {
    if (["with", "by", "in"].includes(event.target.name)) fillMenus();
    choose();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  // The fields have their first values after this event.
  form.addEventListener("reset", () => setTimeout(() => {
    fillMenus();
    choose();
  }));
  byId("page").addEventListener("change", (event) => show(+event.target.value));
  for (const button of document.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") === "true") return;
      show(page + +button.dataset.step);
      goToLines();
    });
  }
  window.addEventListener("hashchange", readAddress);
  form.hidden = byId("pager").hidden = false;
  readAddress();
})();
