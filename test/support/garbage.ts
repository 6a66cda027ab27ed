import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as NodeJS.GCFunction;

export function collectGarbage(): void {
  collect();
}

/** All that is in use is old afterwards: the second collection moves what the first has kept. */
export function collectYoungGarbage(): void {
  for (let time = 0; time < 2; time += 1) collect({ type: 'minor' });
}
