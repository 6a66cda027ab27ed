import { run } from './cli/commands.ts';
import { noteProgram } from './runtime/command-name.ts';

noteProgram(process.argv[1]);
// Without `await`, which a module of CommonJS cannot have here: scripts/build.ts makes one of this file.
void run(process.argv.slice(2), process.env, process).then((code) => (process.exitCode = code));
