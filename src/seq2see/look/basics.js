/* What every component uses: words, the parts of the JSON, elements, colours, maps, the hint beside the pointer, the selection. */

/** Set where the page is live: it can switch heads off and take other pieces. */
let live = null;

/* --- words ---------------------------------------------------------------------------------------------------------- */

const isKorean = () => document.documentElement.lang === "ko";

/** What the page says, in its language: `tell("layer {n}", {n: 2})`. English is the key of what korean.js has. */
function tell(english, values = {}) {
  const words = isKorean() ? KOREAN[english] ?? english : english;
  return words.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** A sentence of the server's; those that korean.js knows by their shape are said in Korean, too. */
function tellSentence(english) {
  const known = isKorean() && KOREAN_SENTENCES.find(([shape]) => shape.test(english));
  return known ? english.replace(...known) : english;
}

/** Names that the server gives, some of which have a number in them. */
const tellName = name => /^layer \d+$/.test(name) ? tell("layer {n}", { n: name.slice(6) }) : tell(name);

/** The language of the page: as chosen last time, else as it was made with --lang ko, else as the browser has it. */
function setLanguage(language) {
  let wanted = language;
  try {
    if (language) localStorage.setItem("language", language);
    else wanted = localStorage.getItem("language");
  } catch {}  // a browser may keep nothing
  wanted ||= document.documentElement.dataset.language;
  document.documentElement.lang = wanted || (/^ko\b/.test(navigator.language) ? "ko" : "en");
  for (const each of document.querySelectorAll("[data-tell]")) each.textContent = tell(each.dataset.tell);
  for (const each of document.querySelectorAll("[data-tell-label]")) each.setAttribute("aria-label", tell(each.dataset.tellLabel));
}

/** A switch between the languages; `changed` draws everything anew. */
function languageSwitch(changed) {
  const languages = { en: "English", ko: "한국어" };
  const buttons = Object.entries(languages).map(([code, name]) => element("button", { type: "button", lang: code, onclick: () => { setLanguage(code); mark(); changed(); } }, name));
  const mark = () => buttons.forEach(button => button.setAttribute("aria-pressed", String(button.lang === document.documentElement.lang)));
  mark();
  return element("div", { class: "languages", role: "group", "aria-label": "Language / 언어" }, ...buttons);
}

/* --- the parts of the JSON -------------------------------------------------------------------------------------------- */

/** `parts("beam")` is asked for once and then known. By default a part lies in the page itself or, where it does not, is
 *  had from the server that sent the page. */
function partsOf(load = loadPart) {
  const known = new Map();
  return name => {
    if (!known.has(name)) {
      known.set(name, load(name));
      known.get(name).catch(() => known.delete(name));  // what failed may be asked for again
    }
    return known.get(name);
  };
}

async function loadPart(name) {
  const here = document.getElementById(`part:${name}`);
  if (here) return JSON.parse(here.textContent);
  const answer = await fetch(`parts/${name}`);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.json();
}

/** `element("button", {class: "piece", onclick}, "text", other)`; an attribute that is null or false is left out. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElementNS(tag === "svg" || attributes.svg ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "svg" || value === null || value === undefined || value === false) continue;
    if (name === "style") made.style.cssText = value;  // a content policy may forbid the attribute
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const number = (value, digits = 3) => value.toFixed(digits);
const percent = value => value >= 0.9995 ? "100 %" : value < 0.0005 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`;

/** A piece as a sentence names it: with its number, as it stands under the tokens, where others look the same. */
const isAlone = (tokens, index) => tokens.indexOf(tokens[index]) === tokens.lastIndexOf(tokens[index]);
const named = (tokens, index) => isAlone(tokens, index) ? tokens[index] : `${tokens[index]} #${index}`;
const word = (tokens, index) => element("span", {}, element("bdi", { class: "word" }, tokens[index]), ...(isAlone(tokens, index) ? [] : [element("sub", {}, `${index}`)]));

/** How a text is to be shaped: its language where the letters tell, and its direction. */
function manner(text, language) {
  const lang = /[\u3040-\u30ff]/.test(text) ? "ja" : /[\uac00-\ud7a3]/.test(text) ? "ko" : language || null;
  const first = /[\p{L}]/u.exec(text);
  return { lang, dir: first && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(first[0]) ? "rtl" : "ltr" };
}

/* --- colours ------------------------------------------------------------------------------------------------------ */

const darkness = matchMedia("(prefers-color-scheme: dark)");
const RAMPS = {
  light: { weight: ["#ffffff", "#d6e6f4", "#8fc1de", "#3f8fc5", "#15599d", "#08264f"],
           signed: ["#8a3d06", "#d9792b", "#f6cfa8", "#ffffff", "#a9d0e8", "#2f7ebc", "#08366b"], hidden: "#e6eaee" },
  dark: { weight: ["#12171c", "#173450", "#1f5c8f", "#4193cf", "#93cdf2", "#f1f9ff"],
          signed: ["#ffd2a6", "#e58a3a", "#7d4517", "#12171c", "#1b4f7a", "#4da0dc", "#c8e8ff"], hidden: "#262e36" },
};
const tables = {};

/** 256 colours of a ramp, as [red, green, blue], in the scheme of the screen. */
function ramp(name) {
  const scheme = darkness.matches ? "dark" : "light";
  const key = `${scheme} ${name}`;
  if (!tables[key]) {
    const stops = [].concat(RAMPS[scheme][name]).map(colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16)));
    tables[key] = Array.from({ length: 256 }, (_, step) => {
      const place = step / 255 * (stops.length - 1), low = Math.floor(place), share = place - low;
      const high = stops[Math.min(low + 1, stops.length - 1)];
      return stops[low].map((value, channel) => Math.round(value + share * (high[channel] - value)));
    });
  }
  return tables[key];
}

/** The colour of a weight between 0 and 1, and a colour of text that can be read on it. */
function shade(weight) {
  return filled(ramp("weight")[Math.round(255 * Math.min(1, Math.max(0, weight)))]);
}

/** A background, and the text colour that has the higher contrast with it: at least 4.5 (WCAG 2), since 1.05 / 0.229 and
 * 0.229 / 0.05 both are. With a text colour lighter than black, neither would be enough on colours in between. */
function filled(colour) {
  const [red, green, blue] = colour.map(value => value > 10 ? ((value / 255 + 0.055) / 1.055) ** 2.4 : value / 255 / 12.92);
  return `background: rgb(${colour}); color: ${0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff"}`;
}

/** One pixel for each number; style makes them cells. `level` says where in the ramp a number lies, null: hidden. */
function paint(canvas, matrix, rampName, level) {
  const height = matrix.length, width = matrix[0].length;
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height), table = ramp(rampName), hidden = ramp("hidden")[0];
  for (let row = 0, at = 0; row < height; row++)
    for (let column = 0; column < width; column++, at += 4) {
      const place = level(matrix[row][column], row, column);
      const colour = place === null ? hidden : table[Math.round(255 * Math.min(1, Math.max(0, place)))];
      image.data[at] = colour[0];
      image.data[at + 1] = colour[1];
      image.data[at + 2] = colour[2];
      image.data[at + 3] = 255;
    }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** What the colours of a map mean: a ramp between the numbers at its ends, and words. */
function legend(rampName, low, high, words = "", end = 1) {
  const bar = element("i", {});
  const draw = () => { bar.style.background = `linear-gradient(90deg, ${ramp(rampName).slice(0, 1 + Math.round(255 * end)).filter((_, step) => step % 15 === 0).map(colour => `rgb(${colour})`)})`; };
  draw();
  attach(bar, { repaint: draw });
  return element("p", { class: "legend" }, element("span", {}, low), bar, element("span", {}, high), element("span", {}, words));
}

/* --- the hint beside the pointer ------------------------------------------------------------------------------------ */

const tip = document.getElementById("tip");

function hint(text, x, y) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 20 + height > innerHeight ? y - height - 12 : y + 20}px`;
}

/* --- the selection: one source piece and one target piece, for all components ---------------------------------------- */

const chosen = { source: null, target: null };

/** What elements want to be told, for as long as they are in the page: `chosen`, `repaint` (in other colours), `end`. */
let attached = [];
const discarded = new WeakSet();  // those that were drawn and never shown

const attach = (root, calls) => attached.push({ root, calls, shown: false });
const tellAll = what => attached.forEach(({ root, calls }) => root.isConnected && calls[what]?.());
darkness.addEventListener("change", () => tellAll("repaint"));

/** Forget elements that have left the page, but not those that are yet to come into it. */
function forget() {
  attached = attached.filter(each => {
    each.shown ||= each.root.isConnected;
    const stays = each.root.isConnected || !each.shown && !discarded.has(each.root.getRootNode());
    if (!stays) each.calls.end?.();
    return stays;
  });
}

/** Set where a page shows two runs: what is chosen in one is then chosen in the other. */
let follow = null;

/** The side by which `chosen` knows it: two runs on one page have sides of their own. */
const sideOf = (summary, side) => summary.letter ? `${side} ${summary.letter}` : side;

function choose(side, index) {
  chosen[side] = chosen[side] === index ? null : index;
  follow?.(side);
  tellAll("chosen");
}

function whenChosen(root, listener) {
  attach(root, { chosen: listener });
  listener();
}

/** Draw when the element comes near the screen, and again when the scheme changes. */
function whenSeen(root, draw) {
  let seen = false;
  const observer = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    observer.disconnect();
    seen = true;
    draw();
  }, { rootMargin: "600px" });
  observer.observe(root);
  attach(root, { repaint: () => seen && draw(), end: () => observer.disconnect() });
}

/** Many small drawings over several frames, so that scrolling stays smooth. */
function spread(tasks) {
  const left = [...tasks];
  const some = () => {
    const until = performance.now() + 6;
    while (left.length && performance.now() < until) left.shift()();
    if (left.length) requestAnimationFrame(some);
  };
  some();
}

/** Arrow keys move between the buttons of a group, of which only one is a stop for Tab. */
function rove(group, buttons) {
  const stop = to => buttons.forEach((button, index) => { button.tabIndex = index === to ? 0 : -1; });
  stop(0);
  group.addEventListener("keydown", event => {
    const at = buttons.indexOf(document.activeElement);
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -at, End: buttons.length - 1 - at }[event.key];
    if (at < 0 || move === undefined) return;
    const back = getComputedStyle(group).direction === "rtl" && /Left|Right/.test(event.key) ? -1 : 1;
    const to = Math.min(buttons.length - 1, Math.max(0, at + back * move));
    event.preventDefault();
    stop(to);
    buttons[to].focus();
  });
}

/** A row of pieces that can be chosen; `style` may colour them, `below` write under them. */
function strip(side, tokens, language, options = {}) {
  const buttons = tokens.map((token, index) => element("button", {
    class: /^<.+>$/.test(token) ? "piece sign" : "piece", type: "button", dir: "auto", "data-index": index,
    onclick: () => choose(side, index),
  }, token, ...(options.below ? [element("small", {}, options.below(index))] : [])));
  const how = manner(tokens.filter((token) => !/^<.+>$/.test(token)).join(""), language);
  const list = element("div", { class: "strip", role: "group", "aria-label": options.label, ...how },
    ...(how.dir === "rtl" ? numbersForwards(tokens, buttons) : buttons));
  rove(list, buttons);
  whenChosen(list, () => buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(chosen[side] === index))));
  return list;
}

/** In a line that runs from the right, pieces of one number still run from the left. */
function numbersForwards(tokens, buttons) {
  const groups = [];
  tokens.forEach((token, index) => {
    const run = /^▁*\p{Nd}+$/u.test(token);
    if (run && groups.at(-1)?.dir === "ltr") groups.at(-1).append(buttons[index]);
    else groups.push(run ? element("span", { class: "run", dir: "ltr" }, buttons[index]) : buttons[index]);
  });
  return groups;
}

/** What was chosen last in a component, for when it is drawn anew for another sentence. */
const remembered = new Map();

/** A group of radio buttons that looks like one control. */
function choice(legend, name, labels, onchange) {
  const first = Math.min(remembered.get(name) ?? 0, labels.length - 1);
  return element("fieldset", { class: "choice" }, element("legend", {}, legend), ...labels.map((label, index) => {
    const input = element("input", { type: "radio", name, value: index, onchange: () => { remembered.set(name, index); onchange(index); } });
    input.checked = index === first;
    return element("label", {}, input, label);
  }));
}
