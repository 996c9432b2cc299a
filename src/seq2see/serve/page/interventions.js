/* Two sections that only the live page has: activations taken from another sentence, and one output token beside another. */

/** A refusal in one line, where it concerns a section only; what may help after a while is asked for again. */
function refusal(problem, again) {
  if (!(problem instanceof Refused)) throw problem;
  const isTriedAgain = [0, 429, 503].includes(problem.status);
  if (isTriedAgain) schedule(1000 * (problem.wait ?? 2), again);
  return element("p", { class: "forced" }, refusalInWords(problem, isTriedAgain));
}

/** Both sections start from the model as it is. */
const isAsUsual = ({ prefix = [], without = [] }) => !prefix.length && !without.length;
const notAsUsual = () => element("p", { class: "forced" }, tell("First undo what is listed under “What changes”: this section starts from the model as it is."));

const nats = value => Math.abs(value) < 0.005 ? "0.00" : `${value < 0 ? "−" : "+"}${number(Math.abs(value), 2)}`;
const isolated = text => `\u2068${text}\u2069`;

/* --- activations of another sentence ------------------------------------------------------------------------------------ */

/** What was chosen, for when the section is drawn anew: in another language, or for another sentence. */
const patching = { about: "", model: "", point: "encoder_norm", donor: "", look: null, here: new Set(), there: new Set(), found: null, problem: null };

components.patching = async (root, summary) => {
  const { question } = current, { model, to, text } = question;
  if (!isAsUsual(question) || summary.forced && summary.translation !== summary.own_translation) return root.append(notAsUsual());
  if (patching.model !== JSON.stringify([model, to])) Object.assign(patching, { model: JSON.stringify([model, to]), look: null });
  if (patching.about !== JSON.stringify([model, to, text])) Object.assign(patching, { about: JSON.stringify([model, to, text]), here: new Set(), found: null, problem: null });
  const { source, target } = summary.points;
  if (![...source, ...target].includes(patching.point)) patching.point = source.at(-1);

  const isRedrawn = () => !root.isConnected;
  const side = () => source.includes(patching.point) ? "source" : "target";
  const choices = element("select", { id: "patch-point", onchange: event => {
    const before = side();
    patching.point = event.target.value;
    if (side() !== before) Object.assign(patching, { here: new Set(), there: new Set() });
    show();
    translateAgain();
  } }, ...[["encoder", source], ["decoder", target]].map(([stack, names]) => element("optgroup", { label: stack === "encoder" ? tell("encoder, by source tokens") : tell("decoder, by output tokens") },
    ...names.map(name => element("option", { value: name }, pointName(name))))));
  choices.value = patching.point;
  const donor = element("input", { id: "patch-donor", dir: "auto", autocomplete: "off", autocapitalize: "off", spellcheck: "false", oninput: () => {
    Object.assign(patching, { donor: donor.value, look: null, there: new Set(), found: null, problem: null });
    patching.controller?.abort();
    show();
    schedule(BEFORE_ASKING, readDonor);
  } });
  donor.value = patching.donor;
  const here = element("div", {}), there = element("div", {}), outcome = element("div", { role: "status" });
  root.append(
    element("p", { class: "choose" }, element("label", { for: "patch-point" }, tell("Point inside the model")), " ", choices),
    element("h3", {}, tell("This sentence: tokens whose vectors are replaced")), here,
    element("h3", {}, tell("Another sentence: tokens whose vectors take their place")),
    element("p", { class: "choose" }, element("label", { for: "patch-donor" }, tell("Another sentence")), " ", donor), there, outcome);

  /** The tokens of both sentences, and what came of it. */
  function show() {
    const label = { source: tell("source"), target: tell("translation") }[side()], language = summary.languages[side()];
    here.replaceChildren(toggles(summary[`${side()}_tokens`], language, label, patching.here, translateAgain));
    there.replaceChildren(...(patching.look ? [toggles(patching.look[`${side()}_tokens`], language, label, patching.there, translateAgain)] : []));
    showOutcome();
  }

  function showOutcome() {
    outcome.classList.remove("waiting");
    const [n, m] = [patching.here.size, patching.there.size];
    if (patching.problem) outcome.replaceChildren(refusal(patching.problem, patching.look ? translateAgain : readDonor));
    else if (patching.found) outcome.replaceChildren(...patched(patching.found));
    else outcome.replaceChildren(element("p", { class: "said" }, !patching.donor.trim() ? tell("Type another sentence.")
      : n === m ? tell("Choose tokens in both sentences.") : tell("Tokens here: {n}, there: {m}. Choose as many in both sentences.", { n, m })));
  }

  async function asking(path, body, keep, shown) {
    patching.controller?.abort();
    const { signal } = patching.controller = new AbortController();
    outcome.classList.add("waiting");
    try {
      keep(await askJson(path, { model, to, ...body }, signal));
    } catch (problem) {
      if (signal.aborted) return;
      patching.problem = problem;
    }
    if (!signal.aborted) patching[shown]();  // into the section as it is now: it may have been drawn anew
  }

  async function readDonor() {
    if (isRedrawn() || !patching.donor.trim()) return;
    await asking("/v1/look", { text: patching.donor }, ({ parts }) => Object.assign(patching, { look: parts.summary, problem: null }), "show");
  }

  async function translateAgain() {
    const [tokens, donor_tokens] = [patching.here, patching.there].map(each => [...each].sort((one, other) => one - other));
    patching.controller?.abort();
    Object.assign(patching, { found: null, problem: null });
    if (isRedrawn() || !tokens.length || tokens.length !== donor_tokens.length) return showOutcome();
    await asking("/v1/patch", { text, donor: patching.donor, name: patching.point, tokens, donor_tokens }, found => Object.assign(patching, { found }), "showOutcome");
  }

  Object.assign(patching, { show, showOutcome });
  show();
  if (patching.donor && !patching.look) schedule(0, readDonor);
};

function pointName(name) {
  const layer = /^\w+\.(\d+)\./.exec(name);
  if (layer) return tell("output of layer {n}", { n: +layer[1] + 1 });
  return /embedding/.test(name) ? tell("embeddings with positions") : /^encoder/.test(name) ? tell("output of the encoder") : tell("output of the decoder");
}

/** A row of tokens of which several can be chosen. */
function toggles(tokens, language, label, among, changed) {
  const buttons = tokens.map((token, index) => element("button", {
    type: "button", class: /^<.+>$/.test(token) ? "piece sign" : "piece", dir: "auto", "aria-pressed": String(among.has(index)),
    onclick: event => {
      among.delete(index) || among.add(index);
      event.currentTarget.setAttribute("aria-pressed", String(among.has(index)));
      changed();
    },
  }, token, element("small", {}, index)));
  const how = manner(tokens.join(""), language);
  const list = element("div", { class: "strip", role: "group", "aria-label": label, ...how }, ...(how.dir === "rtl" ? numbersForwards(tokens, buttons) : buttons));
  rove(list, buttons);
  return list;
}

/** Before and after. */
const patched = ({ own_translation: before, translation: now, target_tokens: tokens, probability, changed_probability, effect }) => [
  element("dl", { class: "outcome" }, element("dt", {}, tell("before")), element("dd", {}, element("bdi", {}, before)), element("dt", {}, tell("now")), element("dd", {}, marked(now, before))),
  element("h3", {}, tell("Probability of each token of the old translation: before → now")),
  shares(tokens, probability, changed_probability),
  element("p", { class: "said" }, tell("Log-probability of the old translation: {change} nats", { change: nats(-effect) }))];

/* --- why this token and not that one ------------------------------------------------------------------------------------ */

const MOST_HEADS = 8;
const contrasting = { about: "", found: null, problem: null, that: "" };

components.contrasting = async (root, summary, part) => {
  const { question } = current, { model, to, text, target } = question;
  if (!isAsUsual(question)) return root.append(notAsUsual());
  const { probability, candidates: steps } = await part("candidates");
  const about = JSON.stringify([model, to, text, target]);
  if (contrasting.about !== about) Object.assign(contrasting, { about, found: null, problem: null });
  const side = sideOf(summary, "target");
  const said = strip(side, summary.target_tokens, summary.languages.target, { below: index => percent(probability[index]), label: tell("output tokens and their probabilities") });
  const others = element("div", { class: "others" }), outcome = element("div", { role: "status" });
  const other = element("input", { id: "contrast-that", dir: "auto", autocomplete: "off", autocapitalize: "off", spellcheck: "false", oninput: () => { contrasting.that = other.value; } });
  other.value = contrasting.that;
  const form = element("form", { class: "choose", onsubmit: event => { event.preventDefault(); if (other.value.trim()) compare({ that: other.value }); } },
    element("label", { for: "contrast-that" }, tell("Or another translation as a whole")), " ", other, " ", element("button", {}, tell("Compare")));
  root.append(said, element("h3", {}, tell("Compare it with")), others, form, outcome);
  whenChosen(root, () => {
    const step = chosen[side] ?? 0, own = summary.target_tokens[step];
    others.replaceChildren(...steps[step].filter(each => each.token !== own && each.id !== undefined).map(({ token, id, probability: share }) => element("button", {
      type: "button", class: "piece", onclick: () => compare({ position: step, token: id }),
    }, element("bdi", {}, token), element("small", {}, percent(share)))));
  });

  async function compare(rival) {
    contrasting.controller?.abort();
    const { signal } = contrasting.controller = new AbortController();
    const again = () => compare(rival);
    Object.assign(contrasting, { found: null, problem: null, again });
    outcome.classList.add("waiting");
    try {
      contrasting.found = await askJson("/v1/contrast", { model, to, text, ...(target && { target }), ...rival }, signal);
    } catch (problem) {
      if (signal.aborted) return;
      contrasting.problem = problem;
    }
    if (!signal.aborted) contrasting.show();
  }

  function show() {
    const { found, problem, again } = contrasting;
    outcome.classList.remove("waiting");
    outcome.replaceChildren(...(problem ? [refusal(problem, () => root.isConnected && again())] : found ? contrasted(found, summary) : []));
  }
  contrasting.show = show;
  show();
};

function contrasted({ source_tokens: tokens, prefix, this: one, that, difference, left_out, layers, heads }, summary) {
  const values = { this: isolated(one), that: isolated(that), prefix: isolated(prefix.join("")), difference: nats(difference), times: timesAs(Math.exp(Math.abs(difference))) };
  const most = Math.max(0.01, ...left_out.map(Math.abs)), how = manner(tokens.join(""), summary.languages.source);
  const pieces = tokens.map((token, index) => {
    const piece = element("span", { class: "piece" }, element("bdi", {}, token), element("small", { dir: "ltr" }, nats(left_out[index])));
    const colour = () => { piece.style.cssText = signedShade(left_out[index] / most); };
    colour();
    attach(piece, { repaint: colour });
    return piece;
  });
  const some = heads.slice(0, MOST_HEADS);
  return [
    element("p", { class: "said" }, prefix.length ? tell("“{this}” instead of “{that}” after “{prefix}”: {difference} nats", values) : tell("“{this}” instead of “{that}” at the beginning: {difference} nats", values),
      " ", difference >= 0 ? tell("({this} is {times} times as probable)", values) : tell("({that} is {times} times as probable)", values)),
    element("h3", {}, tell("Source tokens: how far the difference falls without each")),
    legend("signed", `−${number(most, 2)}`, number(most, 2), tell("nats; blue favours {this}, brown favours {that}", values)),
    element("div", { class: "strip", ...how }, ...(how.dir === "rtl" ? numbersForwards(tokens, pieces) : pieces)),
    element("h3", {}, tell("Decoder layers: the difference as if each were the last")),
    signedBars(layers.map((value, layer) => [tell("layer {n}", { n: layer + 1 }), value])),
    ...(some.length ? [element("h3", {}, tell("Attention heads: how far the difference falls without each ({n} of {all})", { n: some.length, all: heads.length })),
      signedBars(some.map(([head, value]) => [headTitle(head), value]))] : []),
  ];
}

const timesAs = ratio => ratio < 10 ? number(ratio, 1) : ratio < 1e6 ? Math.round(ratio).toLocaleString("en") : ratio.toExponential(0);

/** The colour of a number between −1 and 1, and a colour of text that can be read on it. */
function signedShade(value) {
  return filled(ramp("signed")[Math.round(255 * (0.5 + value / 2))]);
}

/** Numbers with bars to both sides of zero. */
function signedBars(rows) {
  const most = Math.max(0.01, ...rows.map(([, value]) => Math.abs(value)));
  return element("div", { class: "bars signed" }, ...rows.flatMap(([label, value]) => [
    element("span", {}, label),
    element("div", { class: "bar" }, element("i", { class: value < 0 ? "below" : null, style: `width: ${50 * Math.abs(value) / most}%; margin-left: ${value < 0 ? 50 - 50 * -value / most : 50}%` })),
    element("span", { class: "number" }, nats(value))]));
}
