import { run } from './cli/commands.ts';
import { noteProgram } from './runtime/command-name.ts';

noteProgram(process.argv[1]);
process.exitCode = await run(process.argv.slice(2), process.env, process);
