import { destination, pino, type Logger } from 'pino';
import type { Terminal } from './with-installation.ts';

/** So much is written to a pipe in one piece, whoever else writes to it (PIPE_BUF). */
const atOnce = 4096;

/**
 * The log of a process that serves, on its standard output. Lines of one turn of the event loop are written together, and
 * what is left before the process ends.
 */
export function openLog(level: string, terminal: Terminal): Logger {
  const output = destination(1);
  let lines = '';
  let bytes = 0;
  const writeOut = () => {
    if (lines !== '') output.write(lines);
    lines = '';
    bytes = 0;
  };
  const write = (line: string) => {
    const length = Buffer.byteLength(line);
    if (bytes + length > atOnce) writeOut();
    if (lines === '') setImmediate(writeOut);
    lines += line;
    bytes += length;
  };
  terminal.once('exit', writeOut);
  return pino({ level }, { write });
}
