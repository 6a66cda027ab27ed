import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { join } from 'node:path';

/** A pipe whose reader a test controls: it reads only when `read` is called. */
export interface Fifo {
  /** For the standard output of a child process. Close it when the child runs. */
  readonly writeEnd: number;
  closeWriteEnd(): void;
  /** What is in the pipe now. */
  read(): string;
  /** From now on, the writers get EPIPE. */
  closeReader(): void;
}

export function openFifo(folder: string): Fifo {
  const path = join(folder, 'output');
  execFileSync('mkfifo', [path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writeEnd = openSync(path, constants.O_WRONLY);
  const buffer = Buffer.alloc(2 ** 16);
  return {
    writeEnd,
    closeWriteEnd: () => closeSync(writeEnd),
    read: () => {
      let text = '';
      try {
        for (let bytes = 1; bytes > 0;) {
          bytes = readSync(reader, buffer);
          text += buffer.toString('latin1', 0, bytes);
        }
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      }
      return text;
    },
    closeReader: () => closeSync(reader),
  };
}
