// Records which places of the source a test file reaches. The instrumented copy of the source calls it, in the test's own
// process, in those that it starts and in their threads, so this is plain JavaScript and imports only modules of Node.
import { openSync, writeSync } from 'node:fs';
import { join } from 'node:path';

// One file for all processes of a test: for each place one byte for a hit while modules load, one for a later hit. Written
// at the first hit, because a test may kill the process.
const write = writeSync;
const file = openSync(join(import.meta.dirname, 'hits'), 'r+');
const one = Uint8Array.of(1);
const seen = [];
let later = 0;
// Modules without `await` outside of functions load in one turn.
queueMicrotask(() => (later = 1));

export function hitPlace(number) {
  const at = 2 * number + later;
  if (seen[at] === true) return;
  seen[at] = true;
  try {
    write(file, one, 0, 1, at);
  } catch {
    // The test has replaced the file system, or closed the descriptor.
  }
}
