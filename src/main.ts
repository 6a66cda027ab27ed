#!/usr/bin/env node
import { run } from './cli/commands.ts';

process.exitCode = await run(process.argv.slice(2), process.env, process);
