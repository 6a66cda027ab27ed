import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { authorization, Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';
import { missingIn } from './webhook-events.ts';

/** Milliseconds after an acknowledged push in which its event becomes a delivery, and the delivery is sent. */
const longestPath = 1500;

export const fault: Fault = {
  name: 'kill -9 between the commit of an event and its delivery',
  run: killBeforeDelivery,
};

/** The recovery is the longest time from a kill until the receiver has the events of all acknowledged pushes. */
async function killBeforeDelivery({ tries, short }: FaultOptions): Promise<FaultResult> {
  await using t = new Teardown();
  const receiver = await startReceiver(t);
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]' }, inMemory);
  let server = await line.serve();
  const made = await fetch(`${server.url}/v1/webhooks`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ url: receiver.url, events: ['package.published'] }),
  });
  if (made.status !== 201) throw new Error(await made.text());
  const pushes = new Pushes();
  let [recoveryMs, missing, waiting] = [0, 0, 0];
  for (let each = 0; each < tries && missing === 0; each += 1) {
    const { url } = server;
    await Promise.all([1, 2, 3].map(() => pushes.attempt(url)));
    if (!short) await sleep(randomInt(longestPath));
    const killedAt = performance.now();
    await server.stop('SIGKILL');
    waiting += missingIn(receiver, pushes).length;
    server = await line.serve();
    // A delivery that the killed process has begun is repeated when its lease ends.
    await until(() => missingIn(receiver, pushes).length === 0, 90_000).catch(() => undefined);
    recoveryMs = Math.max(recoveryMs, performance.now() - killedAt);
    missing = missingIn(receiver, pushes).length;
  }
  const result = await resultOf(server.url, pushes, { tries, recoveryMs });
  return { ...result, lost: result.lost + missing, notes: `${waiting} events were undelivered when it was killed` };
}
