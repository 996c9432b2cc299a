/* Attention: a thumbnail of every layer and head to choose from, the chosen one large, and where one piece looks. */

let groups = 0;

async function attention(root, summary, part) {
  const place = root.dataset.place;
  const sides = { encoder: ["source", "source"], decoder: ["target", "target"], cross: ["target", "source"] }[place].map(side => sideOf(summary, side));
  // A decoder row is what was read when a piece was said; across, the piece that was said tells more.
  const labels = { encoder: [summary.source_tokens, summary.source_tokens],
                   decoder: [summary.input_tokens, summary.input_tokens],
                   cross: [summary.target_tokens, summary.source_tokens] }[place];
  if (!summary.layers[place]) return root.append(element("p", { class: "forced" }, tell("This model has no cross-attention.")));
  const key = sideOf(summary, place);
  const layers = await Promise.all(Array.from({ length: summary.layers[place] }, (_, layer) => part(`attention/${place}/${layer}`)));
  const means = layers.map(heads => heads[0].map((row, i) => row.map((_, j) => heads.reduce((sum, head) => sum + head[i][j], 0) / heads.length)));
  // Among many columns even large weights are small: colours then follow the square root.
  const many = labels[1].length > 30, strength = many ? Math.sqrt : value => value;
  const level = place === "decoder" ? (value, row, column) => column > row ? null : strength(value) : strength;
  let { layer, head } = remembered.get(key) ?? { layer: layers.length - 1, head: -1 };
  if (!layers[layer]?.[Math.max(0, head)]) [layer, head] = [layers.length - 1, -1];  // another model was chosen
  const shown = () => head < 0 ? means[layer] : layers[layer][head];

  const name = `heads-${groups++}`, thumbs = [];
  const grid = element("fieldset", { class: "heads", style: `grid-template-columns: auto repeat(${layers[0].length + 1}, minmax(1.7rem, 5rem))` },
    element("span", { class: "name" }), element("span", { class: "name" }, tell("mean")),
    ...layers[0].map((_, index) => element("span", { class: "name" }, index ? `${index + 1}` : tell("head {n}", { n: 1 }))));
  layers.forEach((heads, atLayer) => {
    grid.append(element("span", { class: "name" }, tell("layer {n}", { n: atLayer + 1 })));
    for (let atHead = -1; atHead < heads.length; atHead++) {
      const canvas = element("canvas", { "aria-hidden": "true", style: `aspect-ratio: ${Math.min(2, Math.max(0.5, labels[1].length / labels[0].length))}` });
      const isOff = atHead >= 0 && Boolean(live?.isOff(place, atLayer, atHead));
      const title = `${headName(atLayer, atHead)}${isOff ? `, ${tell("switched off")}` : ""}`;
      const input = element("input", { type: "radio", name, value: `${atLayer} ${atHead}`, "aria-label": title, onchange: () => { layer = atLayer; head = atHead; remembered.set(key, { layer, head }); update(); } });
      input.checked = atLayer === layer && atHead === head;
      grid.append(element("label", { title, class: isOff ? "off" : null }, input, canvas));
      thumbs.push(() => paint(canvas, atHead < 0 ? means[atLayer] : heads[atHead], "weight", level));
    }
  });

  const example = element("div", { class: "example" }), offSwitch = element("div", { class: "off-switch" });
  let pointed = null;  // row and column of the cell under the pointer
  let switched = "";  // the head that can be switched off
  const map = weightMap(sides, labels, level, shown, summary, "weight", (...cell) => {
    if (cell.length && cell.join() === pointed?.join()) return;
    pointed = cell.length ? cell : null;
    explain();
  });
  const caption = element("p", { class: "said" });
  const looked = strip(sides[1], labels[1], summary.languages[sides[1]], { label: tell("attention weights") });
  root.classList.add("attention");
  const meaning = [many ? tell("colours by the square root") : "", place === "decoder" ? tell("grey: hidden by the mask") : ""].filter(Boolean).join("; ");
  root.append(element("div", {}, caption, looked, legend("weight", "0", "1", meaning), map.root), element("div", {}, grid, offSwitch, example));

  /** One weight as it was computed: query and key number by number, their product, the score, and its share.
   *  That under the pointer, else the largest of the chosen row. */
  async function explain() {
    if (head < 0) return example.replaceChildren(element("p", {}, tell("Choose one head to see how its weights are computed."), live ? ` ${tell("It can also be switched off there.")}` : ""));
    const now = [layer, head, pointed], { query, key, v, unscaled } = await part(`inside/${place}/${layer}`);
    if (now[0] !== layer || now[1] !== head || now[2] !== pointed) return;
    const row = pointed?.[0] ?? chosen[sides[0]] ?? 0, weights = shown()[row];
    const to = pointed && level(0, ...pointed) !== null ? pointed[1] : weights.indexOf(Math.max(...weights));
    const q = query[head][row], k = key[head][to], products = q.map((value, index) => v ? v[index] * Math.tanh(value + k[index]) : value * k[index]);
    const sum = products.reduce((total, value) => total + value, 0), width = q.length;
    const line = (label, piece, values) => [element("span", {}, label, piece), vectorStrip(values)];
    const score = v || unscaled ? tell("sum {sum}; after the softmax of the row: ", { sum: number(sum, 2) })
      : tell("sum {sum}, divided by √{width}: {score}; after the softmax of the row: ", { sum: number(sum, 2), width, score: number(sum / Math.sqrt(width), 2) });
    example.replaceChildren(element("h3", {}, tell("One weight of head {n}", { n: head + 1 })),
      element("div", { class: "sum" }, ...line(tell("query of "), word(labels[0], row), q), ...line(tell("key of "), word(labels[1], to), k), ...line(v ? tell("v × tanh of their sum") : tell("their product"), "", products)),
      element("p", { class: "said" }, score, element("b", {}, number(weights[to])), tell(", the weight of this value.")));
  }

  let isSeen = Boolean(live);  // a live page draws only what is near the screen
  function update() {
    if (isSeen) map.draw();
    const row = chosen[sides[0]] ?? 0, weights = shown()[row];
    const best = weights.map((weight, index) => [weight, index]).sort((one, other) => other[0] - one[0]).slice(0, 3).filter(([weight]) => weight >= 0.01);
    caption.replaceChildren(`${headName(layer, head)}: `, element("b", {}, word(labels[0], row)), tell(" attends to "),
      ...best.flatMap(([weight, index], at) => [at ? ", " : "", word(labels[1], index), ` ${number(weight)}`]));
    explain();
    if (live && switched !== `${layer} ${head}`) offSwitch.replaceChildren(...(head < 0 ? [] : [live.offSwitch(place, layer, head)]));
    switched = `${layer} ${head}`;
    looked.querySelectorAll("button").forEach((button, index) => { button.style.cssText = level(weights[index], row, index) === null ? "background: var(--hidden); color: var(--quiet)" : shade(strength(weights[index])); });
  }
  whenSeen(root, () => { isSeen = true; update(); spread(thumbs); });
  whenChosen(root, update);
}

const headName = (layer, head) => `${tell("layer {n}", { n: layer + 1 })}, ${head < 0 ? tell("mean of the heads") : tell("head {n}", { n: head + 1 })}`;

/** The large map: rows look at columns. Pointer and arrow keys read single numbers, a click chooses the row.
 *  `pointed(row, column)` is told of it, and `pointed()` when the pointer leaves. */
function weightMap(sides, labels, level, matrix, summary, rampName = "weight", pointed = () => {}) {
  const [rows, columns] = labels;
  const cellIn = width => Math.max(9, Math.min(32, Math.floor(width / Math.max(columns.length, rows.length * 0.8))));
  const cell = Math.min(cellIn(summary.room ?? 560), Math.max(16, cellIn(innerWidth - 110)));  // on a phone no smaller than a finger can bear
  const size = Math.max(8, Math.min(14, cell - 3));
  const widest = Math.max(...columns.map(token => wide(token, size)));
  const level_labels = widest < cell;
  const canvas = element("canvas", { role: "img", "aria-label": tell("numbers as colours, one row per token"), style: `width: ${columns.length * cell}px; height: ${rows.length * cell}px` });
  const mark = element("div", { class: "mark" }), spot = element("div", { class: "mark hover", hidden: "" });
  const cells = element("div", { class: "cells", tabindex: "0", role: "application", "aria-label": tell("weights; read them with the arrow keys, choose the row with Enter") }, canvas, mark, spot);
  const rowButtons = rows.map((token, index) => element("button", { type: "button", onclick: () => choose(sides[0], index) }, token));
  const columnButtons = columns.map((token, index) => element("button", { type: "button", style: level_labels ? `left: ${index * cell}px` : `left: ${(index + 0.5) * cell + size / 3}px`, onclick: () => choose(sides[1], index) }, token));
  const rowList = element("div", { class: "rows", ...lang(rows, summary.languages[sides[0]]) }, ...rowButtons);
  const columnList = element("div", { class: level_labels ? "columns level" : "columns", ...lang(columns, summary.languages[sides[1]]) }, ...columnButtons);
  rove(rowList, rowButtons);
  rove(columnList, columnButtons);
  const root = element("div", { class: "map", "--cell": `${cell}px`, "--size": `${size}px`, "--head": `${level_labels ? size + 8 : widest * 0.77 + size + 6}px` }, columnList, rowList, cells);

  let at = [0, 0];
  const inside = (value, count) => Math.max(0, Math.min(count - 1, value));
  function point(row, column, x, y) {
    at = [row, column];
    const value = matrix()[row][column];
    const seen = level(value, row, column) === null ? tell("hidden by the mask: 0") : number(value);
    hint(`${named(rows, row)} → ${named(columns, column)}   ${seen}`, x, y);
    pointed(row, column);
    spot.hidden = false;
    spot.style.cssText = `left: ${column * cell - 1}px; top: ${row * cell - 1}px; width: ${cell + 1}px; height: ${cell + 1}px`;
    rowButtons.forEach((button, index) => button.classList.toggle("on", index === row));
    columnButtons.forEach((button, index) => button.classList.toggle("on", index === column));
  }
  function leave() {
    hint("");
    spot.hidden = true;
    pointed();
    marks();
  }
  function marks() {
    const row = chosen[sides[0]], column = chosen[sides[1]];
    mark.hidden = row === null;
    mark.style.cssText = `left: -2px; top: ${(row ?? 0) * cell - 1}px; width: ${columns.length * cell + 2}px; height: ${cell + 1}px`;
    rowButtons.forEach((button, index) => button.classList.toggle("on", index === row));
    columnButtons.forEach((button, index) => button.classList.toggle("on", index === column));
  }
  cells.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    point(inside(Math.floor((event.clientY - box.top) / cell), rows.length), inside(Math.floor((event.clientX - box.left) / cell), columns.length), event.clientX, event.clientY);
  });
  cells.addEventListener("pointerleave", leave);
  cells.addEventListener("blur", leave);
  cells.addEventListener("click", () => choose(sides[0], at[0]));
  cells.addEventListener("keydown", event => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Enter: [0, 0] }[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    if (event.key === "Enter") choose(sides[0], at[0]);
    const box = canvas.getBoundingClientRect(), row = inside(at[0] + down, rows.length), column = inside(at[1] + right, columns.length);
    point(row, column, box.left + column * cell, box.top + row * cell);
  });
  whenChosen(root, marks);
  return { root, draw: () => paint(canvas, matrix(), rampName, level) };
}

/** A few numbers as one line of colours. */
function vectorStrip(values) {
  const canvas = element("canvas", { role: "img", "aria-label": tell("numbers as colours") }), most = Math.max(0.01, ...values.map(Math.abs));
  paint(canvas, [values], "signed", value => 0.5 + value / most / 2);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), at = Math.min(values.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * values.length)));
    hint(`${tell("column {n}", { n: at })}   ${number(values[at])}`, event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => hint(""));
  return canvas;
}

/** Columns stand in the order of reading, whatever the script: only the language is taken over, not the direction. */
const lang = (tokens, language) => ({ lang: manner(tokens.join(""), language).lang });

const ruler = document.createElement("canvas").getContext("2d");
function wide(text, size) {
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}
