#!/usr/bin/env node
import { enableCompileCache } from 'node:module';

// Before anything else is loaded: compiled code is kept between starts, which halves their time.
enableCompileCache();
const { run } = await import('./cli/commands.ts');

process.exitCode = await run(process.argv.slice(2), process.env, process);
