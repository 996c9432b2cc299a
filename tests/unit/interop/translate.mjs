// Translates the lines of standard input with transformers.js: node translate.mjs FOLDER NAME
import { readFileSync } from "node:fs";
import { AutoModelForSeq2SeqLM, AutoTokenizer, env } from "@huggingface/transformers";

const [, , folder, name] = process.argv;
env.allowRemoteModels = false;
env.localModelPath = `${folder}/`;
const source = await AutoTokenizer.from_pretrained(name);
const target = await AutoTokenizer.from_pretrained(`${name}/target`).catch(() => source);
const model = await AutoModelForSeq2SeqLM.from_pretrained(name, { dtype: "fp32" });
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const found = await model.generate({ ...source(line), num_beams: 1, max_length: 60 });
  console.log(target.decode(found.tolist()[0].map(Number), { skip_special_tokens: true }));
}
