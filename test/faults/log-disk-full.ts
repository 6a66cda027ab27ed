import { closeSync, openSync } from 'node:fs';
import type { Fault } from './fault.ts';
import { breakLogs } from './log-faults.ts';

export const fault: Fault = {
  name: 'log on a full disk (/dev/full)',
  run: (options) =>
    breakLogs(options, () => {
      const full = openSync('/dev/full', 'w');
      return Promise.resolve({ stdio: ['ignore', full, full], started: () => closeSync(full) });
    }),
};
