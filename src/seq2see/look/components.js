/* The other components of the page, in its order, and what draws them all. */

async function heading(root, summary) {
  const { run } = summary;
  document.title = `${summary.source} → ${summary.translation}`;
  root.append(
    element("h1", {}, element("bdi", manner(summary.source, summary.languages.source), summary.source), element("span", { class: "arrow" }, "→"),
      element("bdi", manner(summary.translation, summary.languages.target), summary.translation)),
    element("p", { class: "facts" }, `${run}: ${facts(summary)}`));
  root.prepend(languageSwitch(() => draw()));
  for (const note of summary.notes) root.append(element("p", { class: "forced" }, tellSentence(note)));
  if (summary.forced) root.append(element("p", { class: "forced" }, tell("This translation was given. The model's own output: "), element("bdi", {}, summary.own_translation)));
}

const facts = ({ model, model_in_words, parameters }) => model.architecture !== "transformer"
  ? tell("{name}, {parameters} parameters", { name: model_in_words, parameters: parameters.toLocaleString("en") })
  : tell("{encoder} + {decoder} layers, width {width}, {heads} heads, {parameters} parameters",
    { encoder: model.encoder_layers, decoder: model.decoder_layers, width: model.d_model, heads: model.heads, parameters: parameters.toLocaleString("en") });

async function contents(root) {
  const links = new Map([...document.querySelectorAll("main section:not([hidden])")].map(section => [section,
    element("a", { href: `#${section.id}` }, tell(section.dataset.name))]));
  const list = element("ol", {}, ...[...links.values()].map(link => element("li", {}, link)));
  root.append(list);
  const fade = () => {  // at an end beyond which there is more
    list.classList.toggle("more-left", list.scrollLeft > 4);
    list.classList.toggle("more-right", list.scrollLeft + list.clientWidth < list.scrollWidth - 4);
  };
  list.addEventListener("scroll", fade, { passive: true });
  new ResizeObserver(fade).observe(list);
  const seen = new Set();
  const observer = new IntersectionObserver(entries => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target);
    const current = [...links.keys()].find(section => seen.has(section));
    for (const [section, link] of links) section === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
    const link = links.get(current);
    if (link) list.scrollTo({ left: link.offsetLeft + link.offsetWidth / 2 - list.clientWidth / 2 });
  }, { rootMargin: "-20% 0px -60% 0px" });
  for (const section of links.keys()) observer.observe(section);
  attach(root, { end: () => observer.disconnect() });
}

async function tokens(root, summary) {
  const line = (title, side, list) => element("div", {}, element("h3", {}, title), strip(sideOf(summary, side), list, summary.languages[side], { below: index => index, label: title }));
  root.append(
    line(summary.source_tokens.length === 1 ? tell("source, 1 token") : tell("source, {n} tokens", { n: summary.source_tokens.length }), "source", summary.source_tokens),
    line(tell("input of the decoder"), "target", summary.input_tokens),
    line(summary.target_tokens.length === 1 ? tell("output, 1 token") : tell("output, {n} tokens", { n: summary.target_tokens.length }), "target", summary.target_tokens));
}

/** Vectors as strips of colour, a row for each piece; with several in a group, one of them at a time. */
async function vectors(root, summary, part) {
  const groups = summary.vectors[root.dataset.names];
  for (const { title, choices } of groups) {
    const high = (choices[0].side === "source" ? summary.source_tokens : summary.input_tokens).length;
    const picture = element("div", { style: `min-height: ${high * rowHeight(high)}px` });  // so that nothing jumps later
    const show = async index => {
      const { name, side } = choices[index];
      const rows = await part(`vectors/${name}`);
      const labels = side === "source" ? summary.source_tokens : summary.input_tokens;
      picture.replaceChildren(vectorMap(rows, labels, summary.languages[side]));
    };
    const group = `vectors-${root.dataset.names}-${title}`;
    root.append(element("h3", {}, tellName(title)));
    if (choices.length > 1) root.append(choice(root.dataset.names === "layers" ? tell("after") : tell("show"), group, choices.map(each => tellName(each.label)), show));
    root.append(picture);
    whenSeen(root, () => show(Math.min(remembered.get(group) ?? 0, choices.length - 1)));
  }
}

/** The waves that a model with rotary positions turns by: nothing is added, so no vector shows them. */
async function waves(root, { model, source_tokens }) {
  if (model.positions !== "rotary") return;
  const width = model.d_key || model.d_model / model.heads;
  const rows = source_tokens.map((_, place) => Array.from({ length: width }, (_, column) => Math[column % 2 ? "cos" : "sin"](place / 10000 ** ((column - column % 2) / width))));
  root.append(element("h3", {}, tell("rotation of queries and keys by position: cosines and sines of one head")));
  const picture = element("div", {});
  root.append(picture);
  whenSeen(root, () => picture.replaceChildren(vectorMap(rows, source_tokens.map((_, place) => `${place}`), null)));
}

const rowHeight = rows => rows > 40 ? 9 : rows > 20 ? 12 : 16;

function vectorMap(rows, labels, language) {
  const cell = rowHeight(rows.length);
  const values = rows.flat(), largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const strength = Math.min(largest, 2.5 * Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length)) || 1;
  const canvas = element("canvas", { style: `height: ${rows.length * cell}px`, role: "img", "aria-label": tell("numbers as colours, one row per token") });
  paint(canvas, rows, "signed", value => 0.5 + value / strength / 2);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(rows.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * rows.length)));
    const column = Math.min(rows[0].length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * rows[0].length)));
    hint(`${labels[row]}   ${tell("column {n}", { n: column })}   ${number(rows[row][column])}`, event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => hint(""));
  const most = number(strength, 1);
  return element("div", {}, legend("signed", `−${most}`, most), element("div", { class: "vectors", "--cell": `${cell}px` },
    element("div", { class: "labels", lang: manner(labels.join(""), language).lang, style: cell < 12 ? "font-size: .55rem" : null }, ...labels.map(label => element("span", {}, label))), canvas));
}

/** Source above, translation below, and a line from each output piece to what it comes from. */
async function alignment(root, summary, part) {
  const links = await part("alignment");
  if (!links.length) return;
  const above = strip("source", summary.source_tokens.slice(0, -1), summary.languages.source, { label: tell("source") });
  const below = strip("target", summary.target_tokens.slice(0, -1), summary.languages.target, { label: tell("translation") });
  const high = 90, svg = element("svg", { class: "links", height: high, role: "img", "aria-label": tell("alignment") });
  const { is_weak, in_words } = summary.alignment, drawing = element("div", { class: "aligned" }, above, svg, below);
  root.append(element("p", { class: is_weak ? "said forced" : "said" }, tellSentence(`The lines are drawn ${in_words}.`)), drawing);
  let paths = [];
  const draw = () => {
    const left = drawing.getBoundingClientRect().left - drawing.scrollLeft;
    const middle = (list, index) => { const box = list.querySelector(`[data-index="${index}"]`).getBoundingClientRect(); return box.left + box.width / 2 - left; };
    svg.setAttribute("width", Math.max(above.scrollWidth, below.scrollWidth));
    paths = links.map(({ source, target }) => {
      const from = middle(below, target), to = middle(above, source);
      return element("path", { svg: true, d: `M${from} ${high}C${from} ${high / 2} ${to} ${high / 2} ${to} 0` });
    });
    svg.replaceChildren(...paths);
    mark();
  };
  const mark = () => paths.forEach((path, index) => {
    const { source, target } = links[index], any = chosen.source !== null || chosen.target !== null;
    const on = source === chosen.source || target === chosen.target;
    path.setAttribute("class", on ? "on" : any ? "off" : "");
  });
  whenSeen(root, draw);
  whenChosen(root, mark);
}

/** What each output piece loses when an input piece is left out, or by the slope of its probability. */
async function importance(root, summary, part) {
  const given = await part("importance"), names = ["left_out", "gradient"];
  const group = sideOf(summary, "importance"), sides = ["target", "source"].map(side => sideOf(summary, side));
  let name = names[remembered.get(group) ?? 0];
  const scale = () => Math.max(0.01, ...given[name].flat().map(Math.abs));
  let most = scale();
  const map = weightMap(sides, [summary.target_tokens, summary.source_tokens], value => 0.5 + value / most / 2, () => given[name], summary, "signed");
  const caption = element("div", {});
  const update = () => {
    most = scale();
    map.draw();
    caption.replaceChildren(legend("signed", `−${number(most, 2)}`, number(most, 2), tell("natural logarithms; blue: the input token helps, brown: it hurts")));
  };
  root.append(choice(tell("by"), group, [tell("leaving out"), tell("gradient × input")], index => { name = names[index]; update(); }), caption, map.root);
  whenSeen(root, update);
}

async function lens(root, summary, part) {
  const { probability, rank, candidates } = await part("layers");
  const head = element("tr", {}, element("th", {}), ...summary.target_tokens.map(token => element("th", { scope: "col" }, element("bdi", {}, token))));
  const rows = candidates.map((steps, layer) => element("tr", {}, element("th", { scope: "row" }, tell("layer {n}", { n: layer + 1 })), ...steps.map((words, step) => {
    const said = summary.target_tokens[step];
    const text = [`${tell("layer {n}", { n: layer + 1 })}: `, words.filter((each, at) => !at || each.probability >= 0.0005).map(each => `${each.token} ${percent(each.probability)}`).join("   ")].join("");
    const more = rank[layer][step] > 1 ? `   ·   ${tell("{piece} has rank {rank}, {share}", { piece: said, rank: rank[layer][step], share: percent(probability[layer][step]) })}` : "";
    return element("td", { class: words[0].token === said ? "same" : null, "data-probability": words[0].probability,
      onpointermove: event => hint(text + more, event.clientX, event.clientY), onpointerleave: () => hint(""), onclick: () => choose("target", step) }, words[0].token);
  })));
  const table = element("table", { lang: manner(summary.target_tokens.join(""), summary.languages.target).lang }, element("thead", {}, head), element("tbody", {}, ...rows));
  root.append(legend("weight", "0 %", "100 %", tell("probability of the layer's prediction"), 0.85), scrolling(tell("predictions of each layer"), table));
  whenSeen(root, () => { for (const cell of table.querySelectorAll("td")) cell.style.cssText = shade(+cell.dataset.probability * 0.85); });
}

async function candidates(root, summary, part) {
  const { probability, candidates: steps } = await part("candidates");
  const side = sideOf(summary, "target");
  const said = strip(side, summary.target_tokens, summary.languages.target, { below: index => percent(probability[index]), label: tell("output tokens and their probabilities") });
  const bars = element("div", { class: "bars", lang: manner(summary.target_tokens.join(""), summary.languages.target).lang });
  root.append(said, bars);
  whenChosen(root, () => {
    const step = chosen[side] ?? summary.different ?? 0, own = summary.target_tokens[step];
    const others = steps[step].filter(each => each.probability >= 0.0005 || each.token === own);  // the rest is noise
    const words = others.some(each => each.token === own) ? others : [...others, { token: own, probability: probability[step] }];
    bars.replaceChildren(...words.flatMap(each => [
      live?.takeInstead(summary, step, each, own) ?? element("bdi", { class: each.token === own ? "chosen" : null }, each.token),
      element("div", { class: "bar" }, element("i", { style: `width: ${100 * each.probability}%` })),
      element("span", { class: "number" }, percent(each.probability))]));
  });
}

/** The beam as columns of steps, best on top, each piece joined to what it goes on from. */
async function beam(root, summary, part) {
  const { nodes, best } = await part("beam");
  if (nodes.length < 2) return root.append(element("p", {}, tell("There was no search.")));
  const onBest = new Set();
  for (let at = best; at > 0; at = nodes[at].parent) onBest.add(at);
  const columns = [], labels = nodes.map((node, index) => BYTE.test(node.token) ? characterOf(nodes, index) ?? "·" : node.token);
  nodes.forEach((node, index) => { (columns[node.step + 1] ??= []).push(index); });
  const order = { finished: 0, kept: 0, root: 0, pruned: 1 };
  const spot = [], widths = columns.map(column => Math.max(26, ...column.map(index => wide(labels[index], 13) + 14)));
  const high = 26, gap = 30;
  let x = 2;
  columns.forEach((column, step) => {
    column.sort((one, other) => order[nodes[one].state] - order[nodes[other].state] || nodes[other].score - nodes[one].score);
    column.forEach((index, row) => { spot[index] = { x: x, y: 4 + row * high, width: widths[step] }; });
    x += widths[step] + gap;
  });
  const height = Math.max(...columns.map(column => column.length)) * high + 6;
  const svg = element("svg", { class: "beam", width: x, height, viewBox: `0 0 ${x} ${height}`, role: "img", "aria-label": tell("beam search"), lang: manner(summary.target_tokens.join(""), summary.languages.target).lang });
  const edges = [], boxes = [];
  const path = index => { const list = []; for (let at = index; at > 0; at = nodes[at].parent) list.push(at); return list.reverse(); };
  function light(index) {
    const on = new Set(index === null ? [] : path(index));
    boxes.forEach((box, at) => { box.classList.toggle("on", on.has(at)); edges[at]?.classList.toggle("on", on.has(at)); });
  }
  nodes.forEach((node, index) => {
    const { x, y, width } = spot[index], kind = `${node.state}${onBest.has(index) ? " best" : ""}`;
    if (node.parent >= 0) {
      const from = spot[node.parent], start = from.x + from.width, middle = (start + x) / 2;
      edges[index] = element("path", { svg: true, class: `edge ${kind}`, d: `M${start} ${from.y + 10}C${middle} ${from.y + 10} ${middle} ${y + 10} ${x} ${y + 10}` });
      svg.append(edges[index]);
    }
    const text = element("text", { svg: true, x: x + width / 2, y: y + 10.5 }, labels[index]);
    const box = element("g", { svg: true, class: `node ${kind}`, "data-index": index }, element("rect", { svg: true, x, y, width, height: 20, rx: 4 }), text);
    box.addEventListener("pointermove", event => {
      light(index);
      const words = { finished: tell("finished"), kept: tell("kept"), pruned: tell("pruned"), root: tell("begin") }[node.state];
      const bytes = labels[index] === node.token ? "" : `   ${node.token}`;
      hint(`${path(index).map(at => labels[at]).join(" ")}${bytes}   ${tell("score")} ${number(node.score)}   ${tell("probability")} ${percent(Math.exp(node.log_probability))}   ${words}`, event.clientX, event.clientY);
    });
    box.addEventListener("pointerleave", () => { hint(""); light(null); });
    boxes[index] = box;
  });
  svg.append(...boxes);
  const key = (kind, words) => element("span", {}, element("i", { class: `key ${kind}` }), words);
  root.append(element("p", { class: "legend" }, key("best", tell("the translation")), key("finished", tell("another finished hypothesis")), key("kept", tell("continued")), key("pruned", tell("pruned"))),
    scrolling(tell("beam search"), svg), element("h3", {}, tell("finished, best first")), element("ol", { class: "finished" }, ...finished()));

  /** The same in words, for those who cannot point. */
  function finished() {
    const ends = nodes.map((_, index) => index).filter(index => nodes[index].state === "finished").sort((one, other) => nodes[other].score - nodes[one].score);
    return ends.slice(0, summary.decoding.beam).map(index => element("li", {},
      ...(path(index).length > 1 ? path(index).slice(0, -1).flatMap(at => [element("bdi", { class: "word" }, labels[at]), " "]) : [tell("(empty)"), " "]),
      element("span", { class: "number" }, `${tell("score")} ${number(nodes[index].score)}, ${tell("probability")} ${percent(Math.exp(nodes[index].log_probability))}`)));
  }
}

const BYTE = /^<0x([0-9A-F]{2})>$/;

/** The character that a byte completes: one that no token is for is said byte by byte. */
function characterOf(nodes, index) {
  const bytes = [];
  for (let at = index; at >= 0 && BYTE.test(nodes[at].token); at = nodes[at].parent) {
    bytes.unshift(parseInt(BYTE.exec(nodes[at].token)[1], 16));
    if (bytes[0] < 0x80 || bytes[0] >= 0xc0) break;  // the first of a character
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes)).trim() || null;
  } catch {
    return null;
  }
}

/** Something wide, which the keyboard can scroll. */
const scrolling = (label, content) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);

/* --- all of them --------------------------------------------------------------------------------------------------------- */

const components = { heading, contents, tokens, vectors, waves, attention, alignment, importance, lens, candidates, beam };

/** Sentences and equations that depend on the model. */
function explainModel(summary) {
  const { model, decoding, layers } = summary, transformer = model.architecture === "transformer";
  const rnn = model.architecture.startsWith("rnn"), convolutional = model.architecture === "convolutional";
  const scores = { "rnn-attention": "additive", "rnn-dot": "unscaled", "rnn-general": "unscaled" }[model.architecture] ?? "dot";
  const values = [decoding.length_formula, ...(transformer ? ["transformer", model.positions, model.norm] : rnn ? ["rnn"] : ["convolutional"]), rnn ? "" : "stacks",
                  ...(layers.cross ? ["cross", scores, rnn ? "one-head" : "heads"] : ["blind"]), model.output_bias ? "bias" : "", live ? "live" : ""];
  for (const equation of document.querySelectorAll("[data-when]")) equation.toggleAttribute("hidden", !values.includes(equation.dataset.when));
  const words = {
    positions: rnn ? tell("An RNN needs no positions: it reads one token after the other.") : { sinusoid: tell("A sinusoidal positional encoding is added, so that the order matters: high frequencies on the left, low ones on the right."),
                 learned: tell("A learned vector for each position is added, so that the order matters."),
                 rotary: tell("This model adds nothing for the position: it rotates queries and keys by an angle that grows with it, so that only distances matter."),
                 none: tell("This model has no positional encoding.") }[convolutional ? "learned" : model.positions],
    norm: model.norm === "pre" ? tell("Layer normalization is applied to the input of each sub-layer.") : tell("Layer normalization is applied to each sum."),
    lens: convolutional ? tell("the last linear layers") : model.norm === "pre" ? tell("the last layer norm and the output layer") : tell("the output layer"),
    leaves: model.norm === "pre" ? tell(", after a last layer norm,") : "",
    activation: model.activation === "relu" ? "ReLU" : model.activation.toUpperCase(),
    beam: (summary.forced ? tell("This is the model's own search, without the given translation. ") : "") +
      (decoding.beam > 1 ? tell("The search keeps the {beam} best hypotheses at each step, and ranks finished ones by their score (α = {alpha}).", { beam: decoding.beam, alpha: decoding.length_penalty })
                         : tell("The search takes the most probable token at each step (greedy search).")),
  };
  for (const place of document.querySelectorAll("[data-say]")) place.textContent = words[place.dataset.say];
  for (const equation of document.querySelectorAll("math[display=block]"))  // a narrow screen cuts it: the keyboard can scroll it
    equation.scrollWidth > equation.clientWidth ? equation.setAttribute("tabindex", "0") : equation.removeAttribute("tabindex");
}

/** Draw components into new elements, which take the place of the old ones together, unless `isStale` by then. */
async function drawInto(roots, part, isStale = () => false) {
  const summary = await part("summary");
  for (const side of ["source", "target"]) if (chosen[sideOf(summary, side)] >= summary[`${side}_tokens`].length) chosen[sideOf(summary, side)] = null;
  const drawn = [...roots].map(root => [root, root.cloneNode(false)]);
  try {
    await Promise.all(drawn.map(([root, fresh]) => components[root.dataset.component](fresh, summary, part)));
  } catch (problem) {
    drawn.forEach(([, fresh]) => discarded.add(fresh));
    throw problem;
  }
  if (isStale()) drawn.forEach(([, fresh]) => discarded.add(fresh));
  else for (const [root, fresh] of drawn) {
    const stops = each => [...each.querySelectorAll("button, input, [tabindex]")];
    const focused = stops(root).indexOf(document.activeElement);
    root.replaceWith(fresh);
    if (focused >= 0) stops(fresh)[focused]?.focus({ preventScroll: true });
  }
  forget();
  tellAll("chosen");
}
