import test from 'ava';
import { HostConnections } from '../../src/upstream/connections.ts';
import { within } from '../support/until.ts';

const hour = 3_600_000;

test('a group gets a quarter of the connections to a host, and another host has its own', async (t) => {
  const connections = new HostConnections({ max: 8, waitLimit: hour });
  const taken = [await connections.take('http://a.test', 'one'), await connections.take('http://a.test', 'one')];
  const third = connections.take('http://a.test', 'one');
  const ended: string[] = [];
  void third.then(() => ended.push('third'));
  for (const group of ['two', 'two', 'three', 'three', 'four', 'four'])
    taken.push(await within(connections.take('http://a.test', group)));
  const fifth = connections.take('http://a.test', 'five');
  void fifth.then(() => ended.push('fifth'));
  taken.push(await within(connections.take('http://b.test', 'one')));
  t.deepEqual(ended, []);
  taken[2]!();
  await within(fifth);
  t.deepEqual(ended, ['fifth'], 'the group one has its share already');
  taken[0]!();
  await within(third);

  const small = new HostConnections({ max: 2, waitLimit: hour });
  await within(small.take('http://a.test', 'one'));
  await within(small.take('http://a.test', 'two'));
});

test('a request that gets no connection in time is told so, and one that is cancelled or closed does not wait', async (t) => {
  const busy = new HostConnections({ max: 4, waitLimit: 1 });
  await busy.take('http://a.test', 'one');
  const error = await t.throwsAsync(busy.take('http://a.test', 'one'), { code: 'ETIMEDOUT' });
  t.is(error.message, 'got no request: all connections to it are in use');

  const connections = new HostConnections({ max: 4, waitLimit: hour });
  await connections.take('http://a.test', 'one');
  const cancel = new AbortController();
  const waiting = connections.take('http://a.test', 'one', cancel.signal);
  const other = connections.take('http://a.test', 'one');
  cancel.abort(new Error('cancelled'));
  await t.throwsAsync(within(waiting), { message: 'cancelled' });
  await t.throwsAsync(connections.take('http://b.test', 'one', cancel.signal), { message: 'cancelled' });
  connections.close();
  const closed = { message: 'got no request: this server is stopping' };
  await t.throwsAsync(within(other), closed);
  await t.throwsAsync(connections.take('http://b.test', 'one'), closed);
});
