// Make src/api/schema.d.ts from the OpenAPI document. A 64-bit integer is `number | bigint`: the
// parser in src/api/json.ts keeps those beyond 2^53 exact, and the compiler says where to mind it.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const int64 = () =>
  ts.factory.createUnionTypeNode([
    ts.factory.createKeywordTypeNode(ts.SyntaxKind.NumberKeyword),
    ts.factory.createKeywordTypeNode(ts.SyntaxKind.BigIntKeyword),
  ]);
const document = JSON.parse(await readFile(new URL("../../openapi/openapi.json", import.meta.url), "utf8"));
const tree = await openapiTS(document, {
  transform: (schema) => (schema.type === "integer" && schema.format === "int64" ? int64() : undefined),
});
await writeFile(new URL("../src/api/schema.d.ts", import.meta.url), astToString(tree));
