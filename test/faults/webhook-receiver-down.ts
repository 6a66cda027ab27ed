import { startReceiver, allowLoopback, createWebhook, deliverUntil } from '../support/receiver.ts';
import { rowsOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import type { Fault, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, token } from './pushes.ts';
import { Teardown } from './teardown.ts';
import { missingIn } from './webhook-events.ts';

const hour = 3_600_000;
/** Deliveries without a first attempt, and those that are being sent. */
const unfinished = 'SELECT id FROM webhook_deliveries WHERE attempts = 0 OR lease IS NOT NULL';

export const fault: Fault = {
  name: 'webhook receiver down for a day, with a moved clock',
  run: loseReceiver,
};

/** A push in each hour of a day without the receiver. The recovery is from its return until it has all events. */
async function loseReceiver(): Promise<FaultResult> {
  await using t = new Teardown();
  const server = await startTestServer(t, { ...allowLoopback, bootstrapToken: token, audit: { keep: '1h' } });
  const receiver = await startReceiver(t);
  const pushes = new Pushes();
  server.clock.now = Date.now();
  await createWebhook(server, receiver.url, ['package.*'], token);
  await receiver.stop();
  for (let each = 0; each < 24; each += 1) {
    await pushes.attempt(server.url);
    // An attempt that ends after the clock has moved would be repeated a day later.
    await deliverUntil(server, async () => (await rowsOf(server, unfinished)).length === 0);
    server.clock.now += hour;
    await server.installation.jobs.run('audit');
  }
  await receiver.start();
  const backAt = performance.now();
  // The longest pause between two attempts.
  server.clock.now += 24 * hour;
  await deliverUntil(server, () => missingIn(receiver, pushes).length === 0).catch(() => undefined);
  const recoveryMs = performance.now() - backAt;
  const result = await resultOf(server.url, pushes, { tries: 1, recoveryMs });
  const missing = missingIn(receiver, pushes).length;
  return { ...result, lost: result.lost + missing, notes: `${receiver.received.length} requests to the receiver` };
}
