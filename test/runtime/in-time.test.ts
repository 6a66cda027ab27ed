import { once } from 'node:events';
import { connect } from 'node:net';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { inTime } from '../../src/runtime/in-time.ts';

/** Sends back what it gets, and counts in the shared number what it has sent. */
const echo = `
  const { parentPort, workerData } = require('node:worker_threads');
  require('node:net').createServer((socket) => socket.on('data', (bytes) => socket.write(bytes, () => {
    Atomics.add(workerData, 0, 1);
  }))).listen(0, '127.0.0.1', function () { parentPort.postMessage(this.address().port); });`;

test('an answer that arrived while the process was busy is not late', async (t) => {
  const answers = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(echo, { eval: true, workerData: answers });
  t.teardown(() => worker.terminate());
  const [port] = (await once(worker, 'message')) as [number];
  const socket = connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  for (let times = 1; times <= 5; times += 1) {
    const work = async () => {
      const [bytes] = (await once(socket, 'data')) as [Buffer];
      return bytes.toString();
    };
    const found = inTime(work, 20, { late: () => 'late' });
    const end = performance.now() + 40;
    socket.write('b');
    while (performance.now() < end || Atomics.load(answers, 0) < times);
    t.is(await found, 'b');
  }
});

const never = async () => new Promise<string>(() => undefined);

test('what takes too long has the result of late, or is an error, and its own result is ignored', async (t) => {
  t.is(await inTime(never, 5, { late: () => 'late' }), 'late');
  await t.throwsAsync(inTime(never, 5), { message: 'not done within 5 ms' });
  await t.throwsAsync(
    inTime(never, 5, {
      late: () => {
        throw new RangeError('slow');
      },
    }),
    { instanceOf: RangeError },
  );
  await t.throwsAsync(
    inTime(async () => {
      throw new RangeError('failed');
    }, 60_000),
    { message: 'failed' },
  );
});
