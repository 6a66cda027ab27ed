import { reconcileMixed } from '../support/mixed-requests.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { Teardown } from './teardown.ts';

export const fault: Fault = { name: 'thousands of mixed requests reconcile with the logs of two instances', run };

async function run({ short }: FaultOptions): Promise<FaultResult> {
  await using t = new Teardown();
  const requests = short ? 3000 : 10_000;
  const figures = await reconcileMixed(t, { dialect: 'mysql', instances: 2, requests });
  return { tries: 1, acknowledged: figures['requests']!, lost: 0, halfVisible: 0, recoveryMs: 0 };
}
