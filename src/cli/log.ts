import { pino, type Logger } from 'pino';
import { LogOutput } from './log-output.ts';
import type { Terminal } from './with-installation.ts';

interface ServerLog {
  log: Logger;
  /** Number of lines that could not be written and were dropped. */
  droppedLines: () => number;
}

/**
 * The log of a server process, on its standard output. An output that is full, stalled or closed stops no request: its
 * lines are dropped and counted. The last lines are written before the process ends.
 */
export function openLog(level: string, terminal: Terminal): ServerLog {
  const output = new LogOutput(1, (lines) => log.error({ lines }, `${lines} lines of the log were dropped`));
  const log = pino({ level }, { write: (line: string) => output.write(line) });
  terminal.once('exit', () => output.end());
  return { log, droppedLines: () => output.dropped };
}
