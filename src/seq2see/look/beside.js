/* One sentence and two runs: each component twice, side by side, with the parts of one run each. */

const LETTERS = ["A", "B"], both = await loadPart("comparison");
const isWide = () => innerWidth > 832;  // as in page.css: below, the runs stand one below the other

/** The parts of one run; its summary also has what tells it from the other one. */
const runs = Object.fromEntries(LETTERS.map((letter, index) => {
  const own = partsOf(name => loadPart(`${letter}/${name}`));
  const told = own("summary").then(summary => {
    const languages = { ...summary.languages };
    for (const side of ["source", "target"]) languages[`${side} ${letter}`] = summary.languages[side];
    return { ...summary, letter, languages, different: both.difference?.tokens[index] ?? null,
      get room() { return isWide() ? Math.min(innerWidth, 1152) / 2 - 150 : 560; } };
  });
  return [letter, name => name === "summary" ? told : own(name)];
}));

for (const letter of LETTERS) for (const side of ["source", "target"]) chosen[`${side} ${letter}`] = null;

/** What was chosen in one run is chosen in the other, where a token of it stands for the same characters. */
follow = side => {
  const [what, letter] = side.split(" "), from = LETTERS.indexOf(letter), index = chosen[side];
  const link = both.links[what].find(pair => pair[from] === index);
  chosen[`${what} ${LETTERS[1 - from]}`] = index === null || !link ? null : link[1 - from];
};

const nameOf = letter => [element("b", {}, tell("Run {letter}", { letter })), " ", element("bdi", {}, both.runs[LETTERS.indexOf(letter)])];

/** The heading: the sentence, both outputs with what differs marked, and what each run thinks of both. */
components.heading = async root => {
  const summaries = await Promise.all(LETTERS.map(letter => runs[letter]("summary")));
  document.title = `${both.sentence} → ${both.runs.join(" | ")}`;
  const outputs = both.difference ? LETTERS : [""];
  const share = log => log === null ? tell("no tokens for it") : tell("{share} (log {log})", { share: percent(Math.exp(log)), log: number(log, 2) });
  const rows = summaries.map((summary, index) => element("tr", {},
    element("th", { scope: "row" }, ...nameOf(summary.letter), element("small", {}, facts(summary))),
    element("td", {}, element("bdi", manner(summary.translation, summary.languages.target), both.common,
      ...(both.difference ? [element("mark", {}, both.rest[index] || "∅")] : []))),
    ...outputs.map((_, column) => element("td", { class: "number" }, share(both.log_probability[index][column])))));
  const head = [tell("run"), tell("translation"), ...outputs.map(letter => letter ? tell("probability of the output of {letter}", { letter }) : tell("probability of the output"))];
  const verdict = !both.difference ? tell("Both outputs are the same.")
    : both.common.trim() ? tell("The outputs first differ after “{text}”.", { text: both.common.trim() }) : tell("The outputs differ from the first token on.");
  root.append(element("h1", {}, element("bdi", manner(both.sentence, summaries[0].languages.source), both.sentence)),
    element("p", { class: "facts", id: "verdict" }, verdict),
    scrolling(tell("translation"), element("table", { class: "outputs" }, element("thead", {}, element("tr", {}, ...head.map(each => element("th", { scope: "col" }, each)))), element("tbody", {}, ...rows))));
  root.prepend(languageSwitch(() => draw()));
  for (const { letter, notes, forced, own_translation } of summaries) {
    for (const note of notes) root.append(element("p", { class: "forced" }, `${letter}: `, tellSentence(note)));
    if (forced) root.append(element("p", { class: "forced" }, `${letter}: `, tell("This translation was given. The model's own output: "), element("bdi", {}, own_translation)));
  }
};

for (const place of document.querySelectorAll("[data-both]")) {
  place.classList.add("beside");
  place.append(...LETTERS.map(letter => element("div", { role: "group" }, element("h3", { "data-run": letter }, ...nameOf(letter)),
    element("div", { "data-component": place.dataset.both, "data-run": letter, "data-place": place.dataset.place ?? null }))));
}

async function draw() {
  for (const title of document.querySelectorAll("h3[data-run]")) {
    title.replaceChildren(...nameOf(title.dataset.run));
    title.parentElement.setAttribute("aria-label", title.textContent);
  }
  await Promise.all([...document.querySelectorAll("[data-component]")].map(root => drawInto([root], runs[root.dataset.run ?? "A"])));
  LETTERS.forEach((letter, index) => {  // the first token that differs, wherever output tokens stand in a row
    if (!both.difference) return;
    for (const piece of document.querySelectorAll(`#output [data-run="${letter}"] .strip [data-index="${both.difference.tokens[index]}"]`)) {
      piece.classList.add("different");
      piece.title = tell("first different token");
    }
  });
}

setLanguage();
await draw();
document.documentElement.dataset.ready = "true";
