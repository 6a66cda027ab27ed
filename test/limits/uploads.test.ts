import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import test from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { schema } from '../../src/config/schema.ts';
import type { RepeatedEvents } from '../../src/events/repeated.ts';
import { limitCost } from '../../src/http/limit.ts';
import { AppResponse } from '../../src/http/request-context.ts';
import { Limits } from '../../src/limits/limits.ts';

test('an upload whose client has left before it begins takes no place', async (t) => {
  const { limits: settings } = schema.parse({ limits: { uploads: 1, delay: '0s' } });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const events = { note: () => undefined } as unknown as RepeatedEvents;
  const limits = new Limits({ settings, cache, events, now: () => 1000 });
  const upload = async (hasLeft: boolean) => {
    const response = new AppResponse(new IncomingMessage(new Socket()));
    response.limits = limits;
    if (hasLeft) response.destroy();
    await limitCost(response, undefined, true);
    return response;
  };
  await upload(true);
  const response = await upload(false);
  await t.throwsAsync(upload(false), { message: /limit of 1 uploads/ });
  response.emit('close');
  await t.notThrowsAsync(upload(false));
});
