"use strict";
// Draws the attention that the reader chooses. All data is in the page; nothing is loaded.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  // Between the rows of words, and the size of letters, in pixels; letters of a word that are shown.
  const GAP = 190, FONT = 13, MAX_CHARACTERS = 24;
  // Lines of a smaller weight are left out: they cannot be seen, and there are many.
  const MIN_VALUE = 255 * 0.02;
  const byId = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  for (const stack of Object.values(data.stacks)) stack.weights = bytes(stack.weights);

  const state = { stack: "cross", layer: 0, heads: new Set(), row: null, word: null, pinned: false };
  const stackNow = () => data.stacks[state.stack];
  const color = (head) => data.colors[head % data.colors.length];
  // The weight of a head, 0 to 255.
  const weight = (stack, layer, head, q, k) => {
    const [Q, K] = [stack.queries.length, stack.keys.length];
    return stack.weights[((layer * stack.heads + head) * Q + q) * K + k];
  };
  const short = (word) => (word.length <= MAX_CHARACTERS ? word : word.slice(0, MAX_CHARACTERS - 1) + "…");
  // Between two words of a row, and around upright words, at least.
  const SPACE = 10;
  // Between the middles of two upright words, at least.
  const STEP = FONT + 1;
  const pen = document.createElement("canvas").getContext("2d");
  // Bold, as a word is when it is chosen.
  pen.font = `700 ${FONT}px ${getComputedStyle(document.body).fontFamily}`;
  const widthOf = (word) => pen.measureText(short(word)).width;
  const widest = (words) => Math.max(0, ...words.map(widthOf));
  const widthIn = (place) => Math.max(place.clientWidth, 240);

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  function figure(place, width, height, label) {
    place.replaceChildren();
    return element("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label,
      "font-size": FONT,
    }, place);
  }

  const titleOf = () => {
    const heads = [...state.heads].sort((a, b) => a - b).map((h) => h + 1);
    const stack = stackNow();
    const which = heads.length === stack.heads ? "all heads"
      : heads.length ? `head${heads.length > 1 ? "s" : ""} ${heads.join(", ")}` : "no head";
    return `${data.titles[state.stack]}, layer ${state.layer + 1} of ${stack.layers}, ${which}`;
  };

  // ---- Two rows of words, joined by lines

  // The middle of each word of a row that fills the width: side by side if there is room, else
  // upright.
  function placed(words, width) {
    const widths = words.map(widthOf), space = width - widths.reduce((sum, one) => sum + one, 0);
    if (space >= SPACE * words.length) {
      let end = 0;
      const middles = widths.map((one) => {
        const start = end;
        end += one + space / words.length;
        return (start + end) / 2;
      });
      return { middles, isUpright: false, height: FONT + SPACE };
    }
    const step = Math.max(STEP, width / words.length);
    const middles = words.map((_, number) => step * (number + 0.5));
    return { middles, isUpright: true, height: widest(words) + SPACE };
  }

  // Both rows, with a group for the lines between them; `of` has the place of each word.
  function twoRows(place, above, below, title) {
    const width = Math.max(widthIn(place), STEP * Math.max(above.length, below.length));
    const of = { q: placed(above, width), k: placed(below, width) };
    const top = of.q.height, bottom = top + GAP;
    const svg = figure(place, width, bottom + of.k.height, title);
    const links = element("g", { "stroke-width": 2, class: "links" }, svg);
    const labels = [];
    for (const [row, words, y] of [["q", above, top - 6], ["k", below, bottom + 6]]) {
      const { middles, isUpright } = of[row];
      words.forEach((word, number) => {
        const x = middles[number];
        const label = element("text", isUpright ? {
          transform: `translate(${x + 4} ${y}) rotate(-90)`,
          "text-anchor": row === "q" ? "start" : "end",
        } : {
          transform: `translate(${x} ${row === "q" ? y : y + FONT - 3})`, "text-anchor": "middle",
        }, svg, short(word));
        label.setAttribute("fill", "currentColor");
        label.setAttribute("class", "word");
        element("title", {}, label, word);
        Object.assign(label.dataset, { row, number });
        labels.push(label);
      });
    }
    const line = (q, k, stroke, opacity) => element("line", {
      x1: of.q.middles[q], y1: top, x2: of.k.middles[k], y2: bottom, stroke,
      "stroke-opacity": opacity.toFixed(2),
    });
    return { links, labels, line };
  }

  let rows;

  function drawFigure() {
    const stack = stackNow(), title = titleOf();
    byId("caption").textContent = title;
    rows = twoRows(byId("lines"), stack.queries, stack.keys, title);
    for (const label of rows.labels) {
      const { row } = label.dataset, number = +label.dataset.number;
      label.setAttribute("tabindex", 0);
      label.setAttribute("role", "button");
      label.addEventListener("pointerenter", () => { if (!state.pinned) look(row, number); });
      label.addEventListener("pointerleave", () => { if (!state.pinned) look(null, null); });
      const pin = () => {
        const again = state.pinned && state.row === row && state.word === number;
        state.pinned = !again;
        look(again ? null : row, again ? null : number);
      };
      label.addEventListener("click", pin);
      label.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        pin();
      });
    }
    drawLines();
  }

  function look(row, word) {
    [state.row, state.word] = [row, word];
    drawLines();
  }

  function drawLines() {
    const stack = stackNow();
    const made = [];
    for (const head of state.heads) {
      for (let q = 0; q < stack.queries.length; q++) {
        if (state.row === "q" && state.word !== q) continue;
        for (let k = 0; k < stack.keys.length; k++) {
          if (state.row === "k" && state.word !== k) continue;
          const value = weight(stack, state.layer, head, q, k);
          if (value >= MIN_VALUE) made.push(rows.line(q, k, color(head), value / 255));
        }
      }
    }
    rows.links.replaceChildren(...made);
    for (const label of rows.labels) {
      const isChosen = label.dataset.row === state.row && +label.dataset.number === state.word;
      label.setAttribute("font-weight", isChosen ? 700 : 400);
      label.setAttribute("aria-pressed", isChosen && state.pinned);
    }
  }

  function drawAlignment() {
    const { above, below, links } = data.alignment;
    const drawn = twoRows(byId("alignment"), above, below, "Word alignment");
    drawn.links.replaceChildren(
      ...links.map(([q, k, value]) => drawn.line(q, k, data.colors[0], Math.max(value, 0.25))));
  }

  // ---- Pictures of matrices

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  // A canvas with one pixel for each value; the page enlarges it.
  function picture(rows, columns, valueOf, hex, className) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height, canvas.className] = [columns, rows, className];
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    const [red, green, blue] = channels(hex);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        image.data.set([red, green, blue, valueOf(r, c)], 4 * (r * columns + c));
      }
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  function drawThumbnails() {
    const stack = stackNow(), place = byId("thumbnails");
    place.replaceChildren();
    place.style.gridTemplateColumns = `auto repeat(${stack.heads}, minmax(1.5rem, 5.5rem))`;
    for (let layer = 0; layer < stack.layers; layer++) {
      const name = document.createElement("span");
      name.textContent = `layer ${layer + 1}`;
      place.append(name);
      for (let head = 0; head < stack.heads; head++) {
        const button = document.createElement("button");
        button.type = "button";
        button.title = `layer ${layer + 1}, head ${head + 1}`;
        button.setAttribute("aria-label", button.title);
        // The square root, so that small weights can be seen too.
        const value = (q, k) => Math.sqrt(255 * weight(stack, layer, head, q, k));
        button.append(picture(stack.queries.length, stack.keys.length, value, color(head), "pixels"));
        button.addEventListener("click", () => {
          state.layer = layer;
          state.heads = new Set([head]);
          drawChoices();
          drawAll();
          byId("caption").scrollIntoView({ block: "nearest" });
        });
        place.append(button);
      }
    }
  }

  // The mean of the chosen heads, with the words.
  function drawMatrix() {
    const stack = stackNow(), heads = [...state.heads];
    byId("matrix-caption").textContent =
      `${titleOf()}: ${heads.length > 1 ? "mean weights" : "weights"}`;
    const place = byId("matrix"), left = widest(stack.queries) + SPACE, row = 20;
    const cell = Math.min(96, Math.max(STEP, (widthIn(place) - left) / stack.keys.length));
    const isUpright = widest(stack.keys) + 4 > cell;
    const top = (isUpright ? widest(stack.keys) : FONT) + SPACE;
    const width = left + cell * stack.keys.length, height = top + row * stack.queries.length;
    const svg = figure(place, width, height, byId("matrix-caption").textContent);
    stack.keys.forEach((word, k) => {
      const x = left + cell * (k + 0.5);
      element("text", isUpright
        ? { transform: `translate(${x + 4} ${top - 6}) rotate(-90)`, fill: "currentColor" }
        : { x, y: top - 6, "text-anchor": "middle", fill: "currentColor" }, svg, short(word));
    });
    stack.queries.forEach((word, q) => {
      const y = top + row * q;
      element("text", {
        x: left - 6, y: y + 14, "text-anchor": "end", fill: "currentColor",
      }, svg, short(word));
      stack.keys.forEach((key, k) => {
        let sum = 0;
        for (const head of heads) sum += weight(stack, state.layer, head, q, k);
        const share = heads.length ? sum / heads.length / 255 : 0;
        if (share < 0.005) return;
        const square = element("rect", {
          x: left + cell * k, y, width: cell - 1, height: row - 1, fill: "currentColor",
          class: "cell", "fill-opacity": share.toFixed(3),
        }, svg);
        element("title", {}, square, `${word} → ${key}: ${(100 * share).toFixed(1)} %`);
      });
    });
  }

  function drawPositions() {
    if (!data.positions) return;
    const { columns, encoding, products } = data.positions;
    const values = bytes(encoding), rows = values.length / columns, similar = bytes(products);
    const picked = (all, width) => (r, c) => all[r * width + c];
    byId("encoding").append(
      picture(rows, columns, picked(values, columns), data.colors[0], "pixels stretched"));
    byId("products").append(
      picture(rows, rows, picked(similar, rows), data.colors[0], "pixels square"));
  }

  // ---- Choices

  function input(type, name, value, isChecked, text, parent) {
    const label = document.createElement("label"), made = document.createElement("input");
    Object.assign(made, { type, name, value, checked: isChecked });
    label.append(made, ` ${text}`);
    parent.append(label);
    return label;
  }

  function drawChoices() {
    const stack = stackNow();
    byId("stacks").replaceChildren();
    for (const name of ["cross", "encoder", "decoder"]) {
      input("radio", "stack", name, name === state.stack, data.titles[name], byId("stacks"));
    }
    byId("layer").replaceChildren(...Array.from({ length: stack.layers }, (_, layer) => {
      const isChosen = layer === state.layer;
      return new Option(`${layer + 1} of ${stack.layers}`, layer, isChosen, isChosen);
    }));
    byId("heads").replaceChildren();
    for (let head = 0; head < stack.heads; head++) {
      const label = input("checkbox", "head", head, state.heads.has(head), head + 1, byId("heads"));
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = color(head);
      label.append(swatch);
    }
  }

  function drawAll() {
    [state.row, state.word, state.pinned] = [null, null, false];
    drawFigure();
    drawMatrix();
  }

  function choose(name) {
    const stack = data.stacks[name];
    state.stack = name;
    if (name === "cross") {
      // The head that aligns the words of this sentence best.
      const [layer, head] = data.aligned;
      state.layer = layer - 1;
      state.heads = new Set([head - 1]);
      return;
    }
    // The paper shows the layer before the last one.
    state.layer = Math.max(0, stack.layers - 2);
    state.heads = new Set(Array.from({ length: stack.heads }, (_, head) => head));
  }

  byId("choices").addEventListener("change", (event) => {
    const { name, value, checked, id } = event.target;
    if (name === "stack") {
      choose(value);
      drawChoices();
      drawThumbnails();
    } else if (id === "layer") {
      state.layer = +value;
    } else if (checked) {
      state.heads.add(+value);
    } else {
      state.heads.delete(+value);
    }
    drawAll();
  });
  for (const [id, wanted] of [["all", true], ["none", false]]) {
    byId(id).addEventListener("click", () => {
      const all = Array.from({ length: stackNow().heads }, (_, head) => head);
      state.heads = new Set(wanted ? all : []);
      drawChoices();
      drawAll();
    });
  }

  // The address can choose a view, as in page.html#stack=encoder&layer=5&heads=5,6&word=12
  function readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const isOneOf = (number, count) => Number.isInteger(number) && number >= 1 && number <= count;
    choose(Object.hasOwn(data.stacks, wanted.get("stack")) ? wanted.get("stack") : "cross");
    const stack = stackNow(), layer = +wanted.get("layer");
    const all = Array.from({ length: stack.heads }, (_, head) => head);
    if (isOneOf(layer, stack.layers)) {
      state.layer = layer - 1;
      state.heads = new Set(all);
    }
    const heads = (wanted.get("heads") ?? "").split(",").map(Number);
    const known = heads.filter((head) => isOneOf(head, stack.heads)).map((head) => head - 1);
    if (known.length) state.heads = new Set(known);
    drawChoices();
    drawThumbnails();
    drawAll();
    const word = +wanted.get("word");
    if (isOneOf(word, stack.queries.length)) {
      state.pinned = true;
      look("q", word - 1);
    }
  }

  byId("choices").hidden = false;
  window.addEventListener("hashchange", readAddress);
  // The drawings fill the width.
  let drawnWidth = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === drawnWidth) return;
    drawnWidth = window.innerWidth;
    drawFigure();
    drawMatrix();
    drawAlignment();
  });
  readAddress();
  drawAlignment();
  drawPositions();
})();
