/* The live page: what is typed goes to the server, its translation and its inside come back, and stale answers are dropped. */

const at = id => document.getElementById(id);
const source = at("source"), saidBox = at("said");
const BEFORE_ASKING = 120;  // milliseconds after a key, in which the next one may come

let models = [];
let key = "";
let prefix = [];   // ids of tokens that the translation is to begin with
let without = [];  // heads that are switched off
let current = null;  // the look that is shown: { question, part, summary, links }
let answered = null; // what stands beside the text: { text, look }

/** What is said at a place, by its id, and how: said again in another language when that is chosen. */
const spoken = new Map();
function sayAt(id, words) {
  spoken.set(id, words);
  at(id).replaceChildren(...words());
}

/* --- asking ------------------------------------------------------------------------------------------------------------ */

class Refused extends Error {
  constructor(status, line, wait, { code, tokens, most } = {}) {
    super(line);
    Object.assign(this, { status, line, wait, code, tokens, most });
  }
}

async function ask(path, body, signal) {
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (problem) {
    lost(problem, signal);
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, said.error || answer.statusText, +answer.headers.get("Retry-After") || null, said);
}

/** A connection may break at any time, also in the middle of an answer. */
function lost(problem, signal) {
  throw signal?.aborted ? problem : new Refused(0, "", 3);
}

async function askJson(path, body, signal) {
  const answer = await ask(path, body, signal);
  return answer.json().catch(problem => lost(problem, signal));
}

/** The parts of one look. Those that are asked for together go in one request. */
function inside(question, signal) {
  let waiting = null;
  return partsOf(name => {
    if (!waiting) {
      const together = waiting = { names: [] };
      together.parts = Promise.resolve().then(async () => {
        waiting = null;
        return (await askJson("/v1/look", { ...question, parts: together.names }, signal)).parts;
      });
    }
    waiting.names.push(name);
    asked.add(name);
    return waiting.parts.then(parts => parts[name]);
  });
}
let asked = new Set();  // parts that the last look was asked for: the next will be, too

// Components ask for parts, too, when something is chosen in them, and leave it to us to say what goes wrong. Whoever still waits
// for a part of a look that was given up waits for nothing.
addEventListener("unhandledrejection", event => {
  if (!(event.reason instanceof Refused) && event.reason?.name !== "AbortError") return;
  event.preventDefault();
  report(event.reason, change);
});

/** What goes wrong, in one line; and how long to wait before trying again, where that may help. */
function report(problem, again) {
  if (problem?.name === "AbortError") return;
  if (!(problem instanceof Refused)) throw problem;
  const { status, wait } = problem, isKey = [401, 403].includes(status);
  at("key-form").hidden = !isKey;
  if (isKey) at("key").focus();
  const isTriedAgain = again && [0, 429, 503].includes(status);
  sayAt("problem", () => [refusalInWords(problem, isTriedAgain)]);
  if (isTriedAgain) schedule(1000 * (wait ?? 2), again);
}

function refusalInWords({ status, line, wait }, isTriedAgain) {
  const words = {
    0: tell("The server cannot be reached"),
    401: tell("This server asks for an API key"),
    403: tell("The server does not know this API key"),
    408: tell("The request did not arrive in time (408)"),
    413: tell("The request is too large (413)"),
    429: tell("The server is busy (429)"),
    503: tell("The model is not ready (503)"),
    504: tell("The server did not answer in time (504)"),
  }[status] ?? tell("The server refused the request ({status})", { status });
  const sentences = [`${line && ![401, 403].includes(status) ? `${words}: ${line.replace(/\.$/, "")}` : words}.`];
  if (status === 504) sentences.push(tell("A shorter text may help."));
  if (isTriedAgain) sentences.push(tell("Trying again in {n} s.", { n: wait ?? 2 }));
  return sentences.join(" ");
}

const settle = () => { sayAt("problem", () => []); at("key-form").hidden = true; };

/* --- translating as one types -------------------------------------------------------------------------------------------- */

const timers = new Map();
let controller = new AbortController();

function schedule(delay, what = refresh) {
  clearTimeout(timers.get(what));
  timers.set(what, setTimeout(() => { timers.delete(what); what(); }, delay));
}

/** Nothing that was asked for before is waited for. */
function giveUp() {
  controller.abort();
  stopTalking();
}

function stopTalking() {
  talking?.abort();
  for (const timer of timers.values()) clearTimeout(timer);
  timers.clear();
}

/** The line that the caret is in: that is looked into. */
const lineAtCaret = () => source.value.slice(0, source.selectionStart).split("\n").length - 1;
const choices = () => ({ model: at("model").value || null, to: at("to").value || null });

/** The terms that were typed: [term, translation], or [term, ""] for one that stays as it is. */
const terms = () => at("terms").value.split("\n").map(line => line.split("=").map(part => part.trim()))
  .filter(([term]) => term).map(([term, ...translation]) => [term, translation.join("=")]);

async function refresh() {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller, lines = source.value.split("\n");
  if (!source.value.trim()) return clear();
  if (at("document").checked) return refreshDocument(signal);
  const number = lines[lineAtCaret()].trim() ? lineAtCaret() : lines.findIndex(line => line.trim());
  const question = { ...choices(), text: lines[number], prefix, without };
  const isPlain = !prefix.length && !without.length;
  saidBox.classList.add("waiting");
  if (!isPlain) sayAt("about", () => []);
  const glossary = terms(), body = { ...choices(), text: lines, ...(glossary.length && { glossary }) };
  let quick = null, enforced = [];
  try {
    const translating = isPlain || lines.length > 1 ? translated(body, signal) : null;
    // With terms, the translation that has them is looked into, and not the one that the model would prefer.
    const looking = glossary.length && isPlain
      ? translating.then(({ results }) => {
        const { text, terms: found } = results[number].translations[0];
        return look(found?.length ? { ...question, target: text } : question, signal);
      }) : look(question, signal);
    looking.catch(() => {});  // it is waited for below
    if (translating) {
      const { engine, results, milliseconds } = await translating;
      if (signal.aborted) return;
      quick = results.map(each => each.translations[0].text);
      if (isPlain) enforced = inText(results);
      settle();
      if (isPlain) showSaid(quick.join("\n"), null, enforced);
      if (isPlain) showAbout(engine, milliseconds, results[number]);
    }
    const { summary } = await looking;
    if (signal.aborted) return;
    settle();
    if (!isPlain) showSaid(lines.map((_, index) => index === number ? summary.translation : quick[index]).join("\n"), lines.length === 1 ? current : null);
    else if (quick[number] !== summary.translation) note(() => tell("Fast and exact arithmetic give different translations here. Explained below: "), summary.translation);
    else if (lines.length === 1) showSaid(summary.translation, current, enforced);
    await showChanges(question, signal);
  } catch (problem) {
    if (signal.aborted) return;
    if (quick && problem instanceof Refused && [400, 501].includes(problem.status)) noInside(problem);
    else {
      const isOther = current?.question.text !== question.text;  // the same text stays, with what was switched off and can be undone
      if (!quick && (isPlain || isOther)) clear();
      else if (isOther) hideInside();
      report(problem, refresh);
    }
  }
}

/** Running text is translated as a whole. Its sentences are not looked into: the text may have hundreds. */
async function refreshDocument(signal) {
  saidBox.classList.add("waiting");
  hideInside();
  const glossary = terms(), body = { ...choices(), text: source.value, markup: "auto", ...(glossary.length && { glossary }) };
  try {
    const { engine, results: [result], milliseconds } = await translated(body, signal);
    if (signal.aborted) return;
    settle();
    showSaid(result.translations[0].text);
    showAbout(engine, milliseconds, result);
    const { sentences, tags, placeholders, tags_guessed: some, guessed: others } = result.counts;
    note(() => tell("Sentences: {sentences}; tags inside sentences: {tags}; placeholders: {placeholders}.", { sentences, tags, placeholders }));
    if (some + others) note(() => tell("Tags and placeholders that were placed without alignment: {n}.", { n: some + others }));
    note(() => tell("To look inside the model, switch “Running text” off."));
  } catch (problem) {
    if (signal.aborted) return;
    clear();
    report(problem, refresh);
  }
}

/** Asked for once, however often the inside has to be asked for again. */
let lastTranslated = null;
async function translated(body, signal) {
  const asked = JSON.stringify(body), begun = performance.now();
  if (lastTranslated?.asked !== asked) {
    const answer = await askJson("/v1/translate", body, signal);
    lastTranslated = { asked, ...answer, milliseconds: performance.now() - begun };
  }
  return lastTranslated;
}

function clear() {
  settle();
  hideInside();
  answered = null;
  saidBox.replaceChildren();
  saidBox.classList.remove("waiting", "weak");
  sayAt("about", () => []);
  at("announced").replaceChildren();
}

/** Ask for the inside, and draw what is near the screen. */
async function look(question, signal) {
  const before = current?.question.model === question.model ? asked : [];
  asked = new Set();
  const part = inside(question, signal);
  for (const name of before) part(name).catch(() => {});  // all in one request
  const [summary, links] = await Promise.all([part("summary"), part("alignment")]);
  if (signal.aborted) throw new DOMException("", "AbortError");
  current = { question, part, summary, links };
  at("facts").textContent = facts(summary);
  clearNotes();
  for (const each of summary.notes) note(() => tellSentence(each));
  document.querySelector("main").classList.remove("empty");
  explainModel(summary);
  drawNear();
  return current;
}

/** What is shown below would be that of another text. */
function hideInside() {
  current = null;
  document.querySelector("main").classList.add("empty");
  sayAt("changes", () => []);
  clearNotes();
}

/** The answer is there, but cannot be looked into. */
function noInside({ status, line, code, tokens, most }) {
  hideInside();
  note(() => status === 501 ? tell("This server runs without PyTorch, so that it cannot show the inside of a translation.")
    : code === "too_long" ? tell("Too long to explain: {n} tokens. At most {most} are shown.", { n: tokens, most }) : tellSentence(line));
}

let notes = [];

function note(words, text = "") {
  notes.push(() => element("p", {}, words(), element("bdi", {}, text)));
  sayAt("notes", () => notes.map(each => each()));
}

function clearNotes() {
  notes = [];
  sayAt("notes", () => []);
}

const near = new Set(), shown = new Map();  // sections near the screen, and the look that each shows
const watching = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) near[isIntersecting ? "add" : "delete"](target);
  drawNear();
}, { rootMargin: "500px" });
for (const section of document.querySelectorAll("main section")) watching.observe(section);

function drawNear(sections = near) {
  const look = current, { lang } = document.documentElement;
  if (!look) return;
  for (const section of sections) {
    if (shown.get(section) === look) continue;
    shown.set(section, look);
    drawInto(componentsOf(section), look.part, () => current !== look || document.documentElement.lang !== lang).catch(problem => {
      if (shown.get(section) === look) shown.delete(section);
      if (current === look) report(problem, drawAgain);
    });
  }
}

const componentsOf = section => section.querySelectorAll("[data-component]");

/** Everything that was drawn, in the language of the page: also what is far from the screen, or cannot be seen now. */
function redraw() {
  const drawn = [...shown.keys()];
  shown.clear();
  if (current) return drawNear(new Set([...near, ...drawn]));
  for (const section of drawn) for (const root of componentsOf(section)) root.replaceWith(root.cloneNode(false));
  forget();
}

function drawAgain() {
  settle();
  drawNear();
}

/* --- the translation, and where its words come from -------------------------------------------------------------------------- */

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

/** Where the terms of all lines stand in the translations, one below the other. Python counts code points, JavaScript halves of some. */
function inText(results) {
  const found = [];
  let before = 0;
  for (const { translations: [{ text, terms: some = [] }] } of results) {
    const letters = Array.from(text), units = count => before + letters.slice(0, count).join("").length;
    for (const { target, text: term, how } of some ?? []) if (target) found.push({ start: units(target[0]), end: units(target[1]), term, how });
    before += text.length + 1;
  }
  return found.sort((one, other) => one.start - other.start);
}

const wayOf = how => ({
  search: tell("as the model would have said it"), constraint: tell("by a search with constraints"), "n-best": tell("in another hypothesis"),
  prefix: tell("by a search from this term on"), replacement: tell("put in the place of other words"),
})[how];

/** A piece of the translation that is a term, or a part of one. */
function asTerm(content, start, end, enforced) {
  const found = enforced.find(each => each.start < end && each.end > start);
  return found ? element("mark", { class: "term", title: `${found.term}: ${wayOf(found.how)}` }, content) : content;
}

/** A text without buttons, whose terms are marked. */
function withTerms(text, enforced) {
  const pieces = [];
  let from = 0;
  for (const { start, end } of enforced) {
    if (start < from) continue;
    pieces.push(text.slice(from, start), asTerm(text.slice(start, end), start, end, enforced));
    from = end;
  }
  return [...pieces, text.slice(from)];
}

/** Words that light up with those they come from, once it is known. */
function showSaid(text, look = null, enforced = []) {
  answered = { text, look };
  saidBox.classList.remove("waiting");
  at("announced").textContent = text;
  const how = manner(text, look?.summary.languages.target);
  saidBox.dir = how.dir;
  saidBox.lang = how.lang || "";
  if (!look) return saidBox.replaceChildren(...withTerms(text, enforced));
  const buttons = [];
  const words = element("span", {}, ...[...segmenter.segment(text)].map(({ segment, index, isWordLike }) => {
    if (!isWordLike) return segment;
    const span = [index, index + segment.length];
    const show = event => {
      const found = wholeWords(source.value, comesFrom(look, "target", span));
      markSource(found);
      const words = found.map(([start, end]) => source.value.slice(start, end).trim()).filter(Boolean).join(" ");
      const box = button.getBoundingClientRect();
      hint(words ? `${segment.trim()} ← ${words}` : "", event.clientX ?? box.left, event.clientY ?? box.top);
    };
    const leave = () => { markSource([]); hint(""); };
    const button = element("button", { type: "button", onpointermove: show, onfocus: show, onpointerleave: leave, onblur: leave, "data-start": span[0], "data-end": span[1] }, segment);
    buttons.push(button);
    return asTerm(button, ...span, enforced);
  }));
  if (buttons.length) rove(words, buttons);
  saidBox.replaceChildren(words);
  markSource([]);
}

/** The words that spans touch. */
const wholeWords = (text, spans) => [...segmenter.segment(text)].map(({ segment, index }) => [index, index + segment.length])
  .filter(([start, end]) => text.slice(start, end).trim() && spans.some(([from, to]) => from < end && to > start));

/** Characters of the other side, by the alignment of the tokens. Python counts code points, JavaScript halves of some. */
function comesFrom(look, side, [start, end]) {
  const { summary, links } = look, other = side === "source" ? "target" : "source";
  if (!links) return [];
  const touching = (tokens, index) => { const [from, to] = place(look, side, tokens[index]); return from < end && to > start; };
  const spans = summary[`${side}_spans`];
  const wanted = new Set(links.filter(link => touching(spans, link[side])).map(link => link[other]));
  return [...wanted].sort((one, two) => one - two).map(index => place(look, other, summary[`${other}_spans`][index]));
}

/** A span of the server's as a place in what is shown. */
function place(look, side, [start, end]) {
  const text = side === "source" ? look.summary.source : look.summary.translation, letters = Array.from(text);
  const units = count => letters.slice(0, count).join("").length;
  const typed = look.question.text, bare = typed.trim();  // the server may have put a language's tag in front
  const shift = side === "source" ? typed.indexOf(bare) - Math.max(0, text.lastIndexOf(bare)) : 0;
  return [units(start) + shift, units(end) + shift];
}

function markSource(spans) {
  const pieces = [];
  let from = 0;
  for (const [start, end] of spans) {
    if (end <= from) continue;
    pieces.push(source.value.slice(from, Math.max(from, start)), element("mark", {}, source.value.slice(Math.max(from, start), end)));
    from = end;
  }
  at("behind").replaceChildren(...pieces, `${source.value.slice(from)}\n`);
}

/** The other way: from a place in the text to the words that come from it. */
function markSaid(offset) {
  const look = answered?.look, spans = look && offset !== null ? comesFrom(look, "source", [offset, offset + 1]) : [];
  for (const button of saidBox.querySelectorAll("button"))
    button.classList.toggle("on", spans.some(([start, end]) => start < +button.dataset.end && end > +button.dataset.start));
}

source.addEventListener("input", () => { prefix = []; markSource([]); schedule(BEFORE_ASKING); });
at("terms").addEventListener("input", () => { prefix = []; schedule(BEFORE_ASKING); });
at("document").addEventListener("change", () => { prefix = []; without = []; schedule(0); });
source.addEventListener("pointermove", event => {
  const caret = document.caretPositionFromPoint?.(event.clientX, event.clientY);
  markSaid(caret?.offsetNode === source ? caret.offset : null);
});
source.addEventListener("pointerleave", () => markSaid(null));
source.addEventListener("keyup", event => {
  if (/^(Arrow|Home|End|Page)/.test(event.key)) {
    markSaid(source.selectionStart);
    if (current && current.question.text !== source.value.split("\n")[lineAtCaret()]) schedule(BEFORE_ASKING);
  }
});
source.addEventListener("blur", () => markSaid(null));

function showAbout(engine, milliseconds, result) {
  const { probability, confidence } = result.translations[0];
  saidBox.classList.toggle("weak", Boolean(confidence?.weak));
  sayAt("about", () => {
    const words = [engine, `${Math.round(milliseconds)} ms`];
    if (probability !== null) words.push(tell("probability {share}", { share: percent(probability) }));
    if (result.cut) words.push(tell("the text was truncated: it is longer than the model reads"));
    return confidence ? [`${words.join(" · ")} · `, confidenceNote(confidence)] : [words.join(" · ")];
  });
}

/** How good the translation is expected to be; what that means is in the tooltip. */
function confidenceNote({ value, measures, weak }) {
  const share = percent(value);
  const meaning = measures === "exact"
    ? tell("Of the validation outputs like this one, {share} are right.", { share })
    : tell("Expected chrF: {share}. It compares the letters of a translation with those of a human's.", { share });
  const why = measures === "exact" ? tell("It is more likely wrong than right.") : tell("It is as low as that of the weakest tenth of the validation set.");
  return element("span", { class: weak ? "confidence weak" : "confidence", title: weak ? `${meaning} ${why}` : meaning, tabindex: "0" },
    weak ? tell("weak: confidence {share}", { share }) : tell("confidence {share}", { share }));
}

/* --- what one changes inside --------------------------------------------------------------------------------------------------- */

const same = (one, other) => one.place === other.place && one.layer === other.layer && one.head === other.head;
const placeName = place => ({ encoder: tell("encoder"), decoder: tell("decoder"), cross: tell("across") })[place];
const headTitle = ({ place, layer, head }) => `${placeName(place)}: ${headName(layer, head)}`;

live = {
  isOff: (place, layer, head) => without.some(each => same(each, { place, layer, head })),
  offSwitch(place, layer, head) {
    const isOff = live.isOff(place, layer, head);
    return element("button", { type: "button", "aria-pressed": String(isOff), onclick: () => {
      without = isOff ? without.filter(each => !same(each, { place, layer, head })) : [...without, { place, layer, head }];
      change();
    } }, isOff ? tell("Switch this head on again") : tell("Switch this head off"));
  },
  takeInstead(summary, step, candidate, own) {
    if (candidate.token === own || candidate.id === undefined || /^<\/?\w+>$/.test(candidate.token)) return null;
    return element("button", { type: "button", title: tell("use this instead"), onclick: () => {
      prefix = [...summary.target_ids.slice(0, step), candidate.id];
      change();
    } }, element("bdi", {}, candidate.token));
  },
};

const change = () => isChat() ? lastTalk && refreshChat() : refresh();

let areSharesShown = innerWidth > 700;  // they take up a good part of a phone

/** Before and now, what was changed, and how to undo it. */
async function showChanges(question, signal) {
  if (!question.prefix.length && !question.without.length) return sayAt("changes", () => []);
  const plain = inside({ ...question, prefix: [], without: [] }, signal);
  const [before, sure] = await Promise.all([plain("summary"), plain("candidates")]);
  const now = current.summary;
  let left = null;
  if (question.without.length && before.translation.trim()) {
    const forced = inside({ ...question, prefix: [], target: before.translation }, signal);
    const [same, found] = await Promise.all([forced("summary"), forced("candidates")]);
    if (same.target_tokens.join() === before.target_tokens.join()) left = found;
  }
  if (!signal.aborted) sayAt("changes", () => changes(question, before, now, sure, left));
}

function changes(question, before, now, sure, left) {
  const undo = (label, undone) => element("button", { type: "button", class: "chip", "aria-label": tell("undo: {what}", { what: label }), onclick: () => { undone(); change(); } }, label);
  const chips = question.without.map(head => undo(headTitle(head), () => { without = without.filter(each => !same(each, head)); }));
  if (question.prefix.length) chips.unshift(undo(tell("begins with “{text}”", { text: now.target_tokens.slice(0, question.prefix.length).join("") }), () => { prefix = []; }));
  const lines = [[tell("before"), element("bdi", {}, before.translation)], [tell("now"), marked(now.translation, before.translation)]];
  const children = [element("div", { class: "chips" }, element("h2", {}, tell("What changes")), ...chips),
    element("dl", {}, ...lines.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]))];
  if (left)
    children.push(element("details", { open: areSharesShown ? "" : null, ontoggle: event => { areSharesShown = event.target.open; } },
      element("summary", {}, tell("Probability of each token of the old translation: before → now")),
      shares(before.target_tokens, sure.probability, left.probability)));
  return children;
}

/** The probability of each token, before and after a change. */
const shares = (tokens, before, now) => element("div", { class: "strip" }, ...tokens.map((token, index) => {
  const [one, two] = [before[index], now[index]];
  return element("span", { class: two < one - 0.1 ? "piece fallen" : "piece" }, element("bdi", {}, token), element("small", {}, `${percent(one)} → ${percent(two)}`));
}));

/** A text, with what is not in the other marked: from the first to the last difference. */
function marked(text, other) {
  let start = 0, end = 0;
  const [ours, theirs] = [Array.from(text), Array.from(other)];
  while (start < ours.length && ours[start] === theirs[start]) start++;
  while (end < ours.length - start && end < theirs.length - start && ours.at(-1 - end) === theirs.at(-1 - end)) end++;
  const cut = (from, to) => ours.slice(from, to).join("");
  if (text === other) return element("bdi", {}, text, element("small", {}, ` (${tell("the same")})`));
  return element("bdi", {}, cut(0, start), element("mark", {}, cut(start, ours.length - end)), cut(ours.length - end));
}

/* --- chat ------------------------------------------------------------------------------------------------------------------------ */

let talking = null;
let lastTalk = null;  // the last line and its answer: { question, answer }

function say(kind, words) {
  const line = element("p", { class: kind, ...manner(words) }, words);
  at("talk").append(line);
  at("talk").scrollTop = at("talk").scrollHeight;
  return line;
}

at("ask").addEventListener("submit", event => {
  event.preventDefault();
  const text = at("line").value;
  if (!text.trim()) return;
  stopTalking();
  at("line").value = "";
  settle();
  say("mine", text);
  for (const left of at("talk").querySelectorAll(".waiting")) left.remove();
  const answer = say("theirs waiting", "…"), question = { ...choices(), text };
  const answering = () => converse(question, answer, answering);
  answering();
});

/** Have a line answered, and show the inside of the answer. */
async function converse(question, answer, again) {
  talking = new AbortController();
  const { signal } = talking;
  try {
    const end = await streamed({ ...question, stream: true }, signal, words => { answer.textContent = words; })
      .catch(problem => problem.status === 501 ? answeredWhole(question, signal) : Promise.reject(problem));
    answer.textContent = end.text;
    answer.dir = manner(end.text).dir;
    answer.classList.remove("waiting");
    if (!end.text) answer.remove();
    if (end.note) say("note", end.note);
    at("talk").scrollTop = at("talk").scrollHeight;
    settle();
    prefix = [];
    lastTalk = end.text.trim() ? { question, answer: end.text } : null;
    if (lastTalk) await refreshChat();
  } catch (problem) {
    if (!signal.aborted) {
      report(problem, again);
      if (!timers.has(again)) at("line").value ||= question.text;  // to be mended and sent again
    }
    if (!timers.has(again)) answer.textContent === "…" ? answer.remove() : answer.classList.remove("waiting");
  }
}

/** An answer in one piece, from a server that cannot stream. */
async function answeredWhole(question, signal) {
  const { answer, note } = await askJson("/v1/chat", question, signal);
  return { text: answer, note };
}

/** The inside of the last answer. */
async function refreshChat() {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller, isPlain = !prefix.length && !without.length;
  const question = { ...lastTalk.question, prefix, without };
  try {
    await look({ ...question, target: isPlain ? lastTalk.answer : null }, signal);
    settle();
    await showChanges(question, signal);
  } catch (problem) {
    if (signal.aborted) return;
    if ([400, 501].includes(problem.status)) noInside(problem);
    else report(problem, refreshChat);
  }
}

/** Server-sent events, from an answer to a POST: each token is told, and what stood at the end is given back. */
async function streamed(body, signal, tellToken) {
  const reader = (await ask("/v1/chat", body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read().catch(problem => lost(problem, signal));
    if (done) lost(null, signal);
    const events = (left + value).split("\n\n");
    left = events.pop();
    for (const event of events) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event), what = JSON.parse(data);
      if (kind === "token") tellToken(what.text);
      if (kind === "error") throw new Refused(what.status, what.error, null);
      if (kind === "end") return what;
    }
  }
}

/* --- tabs, models, languages ---------------------------------------------------------------------------------------------------- */

const tabs = [...document.querySelectorAll("[role=tab]")];
rove(document.querySelector("[role=tablist]"), tabs);
for (const tab of tabs) {
  tab.addEventListener("focus", () => open(tab));
  tab.addEventListener("click", () => open(tab));
}

function open(tab) {
  if (tab.getAttribute("aria-selected") === "true") return;
  giveUp();
  for (const each of tabs) {
    each.setAttribute("aria-selected", String(each === tab));
    at(each.getAttribute("aria-controls")).hidden = each !== tab;
  }
  settle();
  prefix = [];
  if (tab.id === "tab-translate") schedule(0);
  else if (lastTalk) refreshChat();
  else clear();
}

const isChat = () => !at("panel-chat").hidden;

async function loadModels() {
  ({ models } = await askJson("/v1/models"));
  at("model").replaceChildren(...models.map(({ name }) => element("option", { value: name }, name)));
  at("models").hidden = models.length < 2;
  showTargets();
}

function showTargets() {
  const { source: from, targets, choose, name, parameters, examples = [] } = models.find(each => each.name === at("model").value);
  const names = new Intl.DisplayNames(document.documentElement.lang, { type: "language", fallback: "code" });
  const named = code => { try { return names.of(code); } catch { return code; } };
  for (const field of [source, at("line")]) field.placeholder = from ? tell("A sentence, in: {language}", { language: named(from) }) : tell("A sentence like those the model learned from");
  const before = at("to").value;
  at("to").replaceChildren(...(choose ? targets : []).map(code => element("option", { value: code }, named(code))));
  if (targets.includes(before)) at("to").value = before;
  at("targets").hidden = !choose;
  showExamples(examples);
  if (!current) at("facts").textContent = tell("{name}, {parameters} parameters", { name, parameters: parameters.toLocaleString("en") });
}

/** Sentences of the validation set: a click puts one into the field, as if it had been typed. */
function showExamples(examples) {
  const shown = examples.map(text => element("button", { type: "button", dir: "auto", onclick: () => {
    source.value = text;
    source.dispatchEvent(new Event("input", { bubbles: true }));
    source.focus();
  } }, text));
  at("examples").replaceChildren(at("examples").firstElementChild, ...shown);
  at("examples").hidden = !shown.length;
}

at("model").addEventListener("change", () => { giveUp(); settle(); showTargets(); without = []; prefix = []; lastTalk = null; isChat() ? clear() : schedule(0); });
at("to").addEventListener("change", () => { prefix = []; if (!isChat()) schedule(0); });
at("key-form").addEventListener("submit", event => {
  event.preventDefault();
  key = at("key").value.trim();
  settle();
  (isChat() ? at("line") : source).focus();
  start();
});

function speak() {
  at("contents").replaceChildren();
  components.contents(at("contents"));
  if (models.length) showTargets();
  for (const [id, words] of spoken) at(id).replaceChildren(...words());
  hint("");
  if (current) {
    explainModel(current.summary);
    at("facts").textContent = facts(current.summary);
  }
  redraw();
}

async function start() {
  try {
    await loadModels();
    if (source.value.trim()) refresh();
  } catch (problem) {
    report(problem, start);
  }
}

setLanguage();
at("languages").append(languageSwitch(speak));
speak();
markSource([]);
source.focus();
await start();  // which may ask for a key, and then the focus is there
document.documentElement.dataset.ready = "true";
