import { setImmediate } from 'node:timers/promises';
import { Command, CommanderError } from 'commander';
import { version } from '../runtime/package.ts';
import { safe, shown } from './printed.ts';
import type { Terminal } from './with-installation.ts';

/**
 * Runs one command of those that `add` adds; resolves to the exit code. Results go to stdout, errors to stderr as one line.
 * What commands write to the terminal of `add` is escaped. `advise` adds to the line of an error what to do.
 */
export async function runProgram(
  words: readonly string[],
  outside: Terminal,
  add: (program: Command, terminal: Terminal) => void,
  advise: (error: unknown) => Promise<string>,
): Promise<number> {
  const terminal = safe(outside);
  const program = new Command('entrepot')
    .description('A NuGet feed, container registry and pull-through mirror in one server')
    .version(version)
    .exitOverride()
    // An error is one line.
    .showSuggestionAfterError(false)
    .configureOutput({
      writeOut: (text) => void terminal.stdout.write(text),
      writeErr: (text) => void terminal.stderr.write(text),
    });
  add(program, terminal);
  // `deprecate` has its own --version. Subcommands would inherit this if it were set before them.
  program.enablePositionalOptions();
  const lost = watchOutput(terminal);
  try {
    await program.parseAsync([...words], { from: 'user' });
    // The last write may have failed a moment ago.
    await setImmediate();
    if (lost.error === undefined || words[0] === 'serve') return 0;
    terminal.stderr.write(`entrepot: the output could not be written: ${lost.error.message}\n`);
    return 1;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    terminal.stderr.write(`entrepot: ${shown(explain(error) + (await advise(error)))}\n`);
    return 1;
  }
}

/**
 * Keeps a command from ending in the middle of its work because its output cannot be written. A reader that has read enough,
 * such as `head`, is no failure; `error` is any other one of the results.
 */
function watchOutput({ stdout, stderr }: Terminal): { error?: Error } {
  const lost: { error?: Error } = {};
  stdout.on?.('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') lost.error ??= error;
  });
  stderr.on?.('error', () => undefined);
  return lost;
}

/** One line for the user of the command. */
function explain(error: unknown): string {
  const { name, message } = error as { name?: string; message?: string };
  const line = (message || String(error)).split('\n', 1)[0]!;
  if (name?.startsWith('Sequelize')) return `ENTREPOT_DATABASE_URL: the database failed: ${line}`;
  return line;
}
