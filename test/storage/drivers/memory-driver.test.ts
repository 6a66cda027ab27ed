import test from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openDriver, store, testDriver } from './driver-suite.ts';

// In a process of its own: a helper declares tests of it.

const open = () => new MemoryDriver();

testDriver('memory', open);

test('a put can report a failure although it succeeded', async (t) => {
  const each = await openDriver(t, open);
  const bytes = Buffer.from('lost answer');
  each.driver.faults.after = (operation) => {
    if (operation === 'put') throw new Error('the response is lost');
  };
  await t.throwsAsync(store(each, bytes), { message: 'the response is lost' });
  each.driver.faults = {};
  t.is((await each.driver.stat(digestOf(bytes)))?.size, bytes.length);
});

test('a list can be out of date', async (t) => {
  const each = await openDriver(t, open);
  each.driver.faults.listLag = 1;
  const listed = async () => {
    const found = [];
    for await (const blobs of each.driver.list()) found.push(...blobs.map(({ digest }) => digest));
    return found;
  };
  const digest = await store(each, Buffer.from('a'));
  t.deepEqual(await listed(), []);
  await each.driver.delete(digest);
  t.deepEqual(await listed(), [digest], 'includes deleted blobs');
  each.driver.faults.listLag = 0;
  t.deepEqual(await listed(), []);
});
