import { folderUntilEnd } from '../support/folder.ts';
import { openFifo } from '../support/processes/fifo.ts';
import type { Fault } from './fault.ts';
import { breakLogs } from './log-faults.ts';

export const fault: Fault = {
  name: 'log on a pipe whose reader stalls',
  run: (options) =>
    breakLogs(options, async (t) => {
      const pipe = openFifo(await folderUntilEnd(t));
      t.teardown(() => pipe.closeReader());
      return { stdio: ['ignore', pipe.writeEnd, pipe.writeEnd], started: () => pipe.closeWriteEnd() };
    }),
};
