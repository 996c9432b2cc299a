/* Attention during training: a slider over the validations, a small map for each layer and head, and the chosen one large. */

const recorded = await loadPart("history"), count = recorded.steps.length;
const root = document.querySelector(".history"), summary = { languages: recorded.languages };
let moment = count - 1, pair = 0, view = null;

/** Weights, which lie in the page as thousandths. */
const weights = each => Array.isArray(each) ? each.map(weights) : each / 1000;
for (const each of recorded.pairs) for (const name of ["cross", "heads", "encoder"]) each[name] &&= weights(each[name]);

/** What can be shown of a pair: its maps by name, the last layer's mean first chosen. */
function viewsOf({ cross, heads, encoder, source_tokens, target_tokens }) {
  const layers = cross[0].length, across = { sides: ["target", "source"], labels: [target_tokens, source_tokens] };
  const found = cross[0].map((_, layer) => ({ ...across, name: headName(layer, -1), at: time => cross[time][layer] }));
  if (heads[0].length > 1) found.push(...heads[0].map((_, head) => ({ ...across, name: headName(layers - 1, head), at: time => heads[time][head] })));
  if (encoder) found.push({ sides: ["source", "source"], labels: [source_tokens, source_tokens], name: tell("encoder self-attention"), at: time => encoder[time] });
  return found;
}

const slider = element("input", { type: "range", min: 0, max: count - 1, step: 1, id: "moment", oninput: () => { moment = +slider.value; update(); } });
const shownStep = element("output", { for: "moment" });
const place = element("div", {}), thumbs = element("fieldset", { class: "heads" }), caption = element("p", { class: "said" });
let views = [], map = null, small = [];

function moments() {
  const step = recorded.steps[moment].toLocaleString("en"), scores = Object.entries(recorded.scores[moment] ?? {});
  return [tell("step {n}", { n: step }), ...scores.map(([name, value]) => `${name} ${value.toLocaleString("en", { maximumFractionDigits: 3 })}`)].join(" · ");
}

function update() {
  shownStep.textContent = moments();
  slider.setAttribute("aria-valuetext", moments());
  map.draw();
  for (const draw of small) draw();
}

function showView(index) {
  view = views[index];
  map = weightMap(view.sides, view.labels, value => value, () => view.at(moment), summary);
  caption.textContent = view.name;
  place.replaceChildren(map.root);
  update();
}

function showPair(index) {
  pair = index;
  Object.assign(chosen, { source: null, target: null });
  views = viewsOf(recorded.pairs[pair]);
  const first = recorded.pairs[pair].cross[0].length - 1;
  small = [];
  thumbs.replaceChildren(element("legend", {}, tell("cross-attention, by layer and head")), ...views.map((each, at) => {
    const [rows, columns] = each.labels;
    const canvas = element("canvas", { "aria-hidden": "true", style: `aspect-ratio: ${Math.min(2, Math.max(0.5, columns.length / rows.length))}` });
    const input = element("input", { type: "radio", name: "view", value: at, "aria-label": each.name, onchange: () => showView(at) });
    input.checked = at === first;
    small.push(() => paint(canvas, each.at(moment), "weight", value => value));
    return element("label", { title: each.name }, input, canvas, element("span", { class: "name" }, each.name));
  }));
  showView(first);
}

slider.value = moment;
root.append(
  ...(recorded.pairs.length > 1 ? [choice(tell("validation pair"), "pair", recorded.pairs.map(each => element("bdi", {}, each.source)), showPair)] : []),
  element("div", { class: "steps" }, element("label", { for: "moment" }, tell("validation")), slider, shownStep),
  element("div", { class: "attention" }, element("div", {}, caption, legend("weight", "0", "1"), place), element("div", {}, thumbs)));
attach(root, { repaint: update });
showPair(0);
document.documentElement.dataset.ready = "true";
