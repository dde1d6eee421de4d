import { env, pipeline } from "./node_modules/@huggingface/transformers/dist/transformers.min.js";

// Everything comes from this folder. The policy in index.html allows no other host either.
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = "./";
env.useBrowserCache = false;
env.useWasmCache = false;
env.backends.onnx.wasm.wasmPaths = new URL("node_modules/onnxruntime-web/dist/", document.baseURI).href;
// More threads need a server that isolates the page.
env.backends.onnx.wasm.numThreads = 1;

// As `decode.max_extra_length` of mtkit.
const MAX_EXTRA_LENGTH = 50;

const form = document.querySelector("form");
const button = document.querySelector("button");
const source = document.querySelector("textarea");
const output = document.querySelector("output");
const status = document.querySelector("#status");

let translator;
try {
  const begin = performance.now();
  translator = await pipeline("translation", "model", { device: "wasm" });
  status.textContent = `The model is loaded (${seconds(begin)}).`;
  button.disabled = false;
} catch (error) {
  status.textContent = `The model cannot be loaded: ${error.message}`;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  output.textContent = "";
  status.textContent = "Translating …";
  const begin = performance.now();
  try {
    for (const line of source.value.split("\n")) {
      output.textContent += `${await translate(line)}\n`;
    }
    status.textContent = `Translated in ${seconds(begin)}.`;
  } catch (error) {
    status.textContent = `The translation failed: ${error.message}`;
  } finally {
    button.disabled = false;
  }
});

async function translate(line) {
  if (!line.trim()) {
    return "";
  }
  const longest = translator.tokenizer.encode(line).length + MAX_EXTRA_LENGTH;
  const [found] = await translator(line, { max_new_tokens: longest, num_beams: 1 });
  return found.translation_text;
}

function seconds(begin) {
  return `${((performance.now() - begin) / 1000).toFixed(2)} s`;
}
