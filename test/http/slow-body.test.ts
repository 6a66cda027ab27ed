import { EventEmitter } from 'node:events';
import test from 'ava';
import type { AppResponse } from '../../src/http/request-context.ts';
import { cutSlowAnswer } from '../../src/http/slow-body.ts';
import { until } from '../support/until.ts';

/** A request whose connection has received `step` bytes more each time that it is asked; at least 50 are needed. */
function receiving(step: number, fields: object = {}) {
  let bytes = 0;
  const socket = {
    get bytesRead() {
      return (bytes += step);
    },
  };
  let isCut = false;
  const destroy = () => (isCut = true);
  const headers = { 'content-length': '900' };
  const request = { headers, socket, complete: false, readableFlowing: true, destroy, ...fields };
  const response = Object.assign(new EventEmitter(), { req: request });
  cutSlowAnswer(response as unknown as AppResponse, { rate: 1000, period: 50 });
  return { response, isCut: () => isCut };
}

test('a body that arrives more slowly than the rate is cut, and nothing else', async (t) => {
  // All are checked in this order, so what is right by then was looked at often enough.
  const others = {
    'without a body': receiving(0, { headers: {} }),
    'with an empty body': receiving(0, { headers: { 'content-length': '0' } }),
    'that is complete': receiving(0, { complete: true }),
    'whose body waits for its reader': receiving(0, { readableFlowing: false }),
    'whose body is not read yet': receiving(0, { readableFlowing: null }),
    'that is just fast enough': receiving(10),
    'whose answer has ended': receiving(0),
  };
  others['whose answer has ended'].response.emit('close');
  const slow = [receiving(0), receiving(9), receiving(0, { headers: { 'transfer-encoding': 'chunked' } })];
  const all = [...slow, ...Object.values(others)];
  t.teardown(() => all.forEach(({ response }) => response.emit('close')));
  await until(() => slow.every(({ isCut }) => isCut()));
  for (const [name, { isCut }] of Object.entries(others)) t.false(isCut(), `a request ${name}`);
});
