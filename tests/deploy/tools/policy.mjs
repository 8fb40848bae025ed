// Plays the API server for a ValidatingAdmissionPolicy: {policy, pods} as JSON on standard input; for each pod the messages
// with which it is refused, none if it is let in.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { Environment } = await import(
  pathToFileURL(`${process.argv[2]}/node_modules/@marcbachmann/cel-js/lib/index.js`)
);
const cel = new Environment({ enableOptionalTypes: true, unlistedVariablesAreDyn: true });
const { policy, pods } = JSON.parse(readFileSync(0, "utf8"));
const { matchConditions, variables, validations } = policy.spec;

const refusals = (object) => {
  if (!matchConditions.every(({ expression }) => cel.evaluate(expression, { object }))) return [];
  const known = { object, variables: {} };
  for (const { name, expression } of variables) known.variables[name] = cel.evaluate(expression, known);
  return validations.filter(({ expression }) => !cel.evaluate(expression, known)).map(({ message }) => message);
};
console.log(JSON.stringify(pods.map(refusals)));
