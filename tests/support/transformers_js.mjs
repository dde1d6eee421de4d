// What transformers.js makes of a model: transformers_js.mjs PACKAGE FOLDER INPUT, as JSON.
// INPUT has texts to encode and decode, and lines to translate.
import { readFileSync } from "node:fs";

const [library, folder, input] = process.argv.slice(2);
const { env, pipeline } = await import(`${library}/dist/transformers.node.mjs`);
env.allowRemoteModels = false;
const { texts, lines, extra } = JSON.parse(readFileSync(input, "utf-8"));
const one = { intraOpNumThreads: 1, interOpNumThreads: 1 };
const translator = await pipeline("translation", folder, { session_options: one });
const tokenizer = translator.tokenizer;

const encoded = texts.map((text) => tokenizer.encode(text));
// As the model puts them out: begun, and padded.
const decoded = encoded.map((ids) => tokenizer.decode([1, ...ids, 0], { skip_special_tokens: true }));
const translated = [];
for (const line of lines) {
  const most = tokenizer.encode(line).length + extra;
  const [found] = await translator(line, { max_new_tokens: most });
  translated.push(found.translation_text);
}
console.log(JSON.stringify({ encoded, decoded, translated }));
