/* One translation, all of whose parts lie in the page. */

const part = partsOf();

async function draw() {
  explainModel(await part("summary"));
  await Promise.all([...document.querySelectorAll("[data-component]")].map(root => drawInto([root], part)));  // one that fails stops no other
}

setLanguage();
await draw();
document.documentElement.dataset.ready = "true";
