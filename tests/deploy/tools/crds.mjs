// Objects of the prometheus-operator as JSON on standard input; for each what its schema finds wrong, or null, as JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const models = pathToFileURL(`${process.argv[2]}/node_modules/@kubernetes-models/prometheus-operator/`);
const found = [];
for (const { apiVersion, kind, ...rest } of JSON.parse(readFileSync(0, "utf8"))) {
  const { [kind]: Model } = await import(new URL(`${apiVersion}/${kind}.js`, models));
  try {
    new Model(rest).validate();
    found.push(null);
  } catch (error) {
    found.push(error.message);
  }
}
console.log(JSON.stringify(found));
