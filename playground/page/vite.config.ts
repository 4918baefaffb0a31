import { fileURLToPath } from "node:url";
import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

const target = (path: string) => fileURLToPath(new URL(`../../target/playground/${path}`, import.meta.url));

export default defineConfig({
  // from whatever folder of a file server
  base: "./",
  plugins: [preact()],
  resolve: { alias: { engine: target("engine/engine.js") } },
  build: { outDir: target("page"), emptyOutDir: true, assetsInlineLimit: 0, target: "es2022" },
});
