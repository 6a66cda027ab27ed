import { destination, pino, type Logger } from 'pino';
import type { Terminal } from './with-installation.ts';

/** A write of at most this many bytes to a pipe is atomic, also when other processes write to it (PIPE_BUF). */
const atomicBytes = 4096;

/**
 * The log of a server process, on its standard output. Lines of one turn of the event loop are written together. The last
 * lines are written before the process ends.
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
    if (bytes + length > atomicBytes) writeOut();
    if (lines === '') setImmediate(writeOut);
    lines += line;
    bytes += length;
  };
  terminal.once('exit', writeOut);
  return pino({ level }, { write });
}
