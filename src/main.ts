#!/usr/bin/env -S node --max-semi-space-size=8
import { enableCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// A hundred bodies under way take a sixth less memory with the smaller space for what is young; it is laid out at the start
// of the process, so that `npm start` says it, too.

// Before anything else is loaded: compiled code is kept between starts, which halves their time.
enableCompileCache();
// Garbage is collected before the heap doubles, so that a hundred bodies under way take up to a fifth less memory.
setFlagsFromString('--heap-growing-percent=40');
// The bytes of buffers count with the rest: on their own they have the heap marked every thirty mebibytes of a fast body.
setFlagsFromString('--external-memory-accounted-in-global-limit');
// A command may run beside a server in little memory: it spares 45 MB of room for what is short-lived.
if (process.argv[2] !== 'serve') setFlagsFromString('--semi-space-growth-factor=1');
const { run } = await import('./cli/commands.ts');

process.exitCode = await run(process.argv.slice(2), process.env, process);
