#!/usr/bin/env -S node --max-semi-space-size=8 --initial-old-space-size=64
// The command `entrepot`, in plain JavaScript. The repository has the TypeScript sources, which Node runs without a build. The
// package has emitted JavaScript, because Node does not strip types below node_modules. `src/main.ts` explains the flags.
import { existsSync } from 'node:fs';

const oldest = 24;
if (Number.parseInt(process.versions.node, 10) < oldest) {
  process.stderr.write(`entrepot: needs Node ${oldest} or newer, and this is ${process.version}\n`);
  process.exit(1);
}
const source = new URL('../src/main.ts', import.meta.url);
await import(existsSync(source) ? source.href : new URL('../dist/src/main.js', import.meta.url).href);
