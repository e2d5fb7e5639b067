import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import ts from "typescript-eslint";

export default defineConfig(
  { ignores: ["src/api/schema.d.ts", "scripts", "eslint.config.js"] },
  js.configs.recommended,
  ts.configs.strictTypeChecked,
  ts.configs.stylisticTypeChecked,
  {
    plugins: { "react-hooks": hooks },
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // Numbers and bigints are texts of pages and addresses everywhere; undefined and objects are refused still.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "react-hooks/rules-of-hooks": "error", // the others are for React's compiler, and its state
      "@typescript-eslint/no-non-null-assertion": "off", // what is at an index that was just looked up
      "no-control-regex": "off", // the console looks for such characters
    },
  },
);
