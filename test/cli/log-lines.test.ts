import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { LogOutput } from '../../src/cli/log-output.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { openFifo } from '../support/processes/fifo.ts';
import { until } from '../support/until.ts';

// Lines for a pipe or a file in this process. `log-output.long.test.ts` has whole servers.

/** A pipe, which takes 64 KiB until something is read. */
async function pipe(t: ExecutionContext) {
  const fifo = openFifo(await folderUntilEnd(t));
  t.teardown(() => {
    fifo.closeWriteEnd();
    fifo.closeReader();
  });
  const resumed: number[] = [];
  const output = new LogOutput(fifo.writeEnd, (lines) => resumed.push(lines));
  const read = () => Buffer.from(fifo.read(), 'latin1').toString();
  return { output, read, resumed };
}

const lineOf = (number: number) => `${String(number).padStart(6, '0')} ${'x'.repeat(1000)}\n`;

test('a full output keeps lines up to a bound, drops whole turns of further ones, and tells their number once', async (t) => {
  const { output, read, resumed } = await pipe(t);
  // 5.2 MB, of which a pipe takes little.
  const count = 5200;
  for (let number = 0; number < count; number += 1) {
    output.write(lineOf(number));
    if (number % 100 === 99) await new Promise(setImmediate);
  }
  await new Promise(setImmediate);
  const { dropped } = output;
  t.true(dropped > 500 && dropped < 1200, String(dropped));
  let text = '';
  await until(() => {
    text += read();
    return resumed.length > 0;
  });
  await until(() => {
    text += read();
    return text.split('\n').length === count - dropped + 1;
  });
  t.deepEqual(resumed, [dropped]);
  t.is(output.dropped, dropped);
  const lines = text.split('\n').slice(0, -1);
  t.is(lines.length, count - dropped);
  const numbers = lines.map((line) => Number(line.slice(0, 6)));
  t.deepEqual(
    numbers,
    numbers.toSorted((one, other) => one - other),
    'in order',
  );
  t.true(
    lines.every((line) => `${line}\n` === lineOf(Number(line.slice(0, 6)))),
    'each is whole',
  );

  output.write('later\n');
  await until(() => read() === 'later\n');
  t.deepEqual(resumed, [dropped], 'nothing was dropped since');
});

test('lines of one turn are written together, and the last ones at the end', async (t) => {
  const { output, read, resumed } = await pipe(t);
  output.write('one\n');
  output.write('two\n');
  t.is(read(), '', 'not before the end of the turn');
  await new Promise(setImmediate);
  t.is(read(), 'one\ntwo\n');
  // What is longer than an atomic write begins anew.
  output.write(`${'a'.repeat(4000)}\n`);
  output.write(`${'b'.repeat(94)}\n`);
  t.is(read(), '');
  output.write('c\n');
  t.is(read(), `${'a'.repeat(4000)}\n${'b'.repeat(94)}\n`);
  output.end();
  t.is(read(), 'c\n');
  await new Promise(setImmediate);
  t.is(read(), '', 'once');
  output.end();
  t.deepEqual([resumed, output.dropped], [[], 0]);
});

test('the end of a process waits a short time for a full output', async (t) => {
  const { output, read } = await pipe(t);
  for (let number = 0; number < 200; number += 1) output.write(lineOf(number));
  const startedAt = performance.now();
  output.end();
  const took = performance.now() - startedAt;
  t.true(took >= 190 && took < 5000, `${took} ms`);
  const first = read();
  output.end();
  const all = first + read();
  t.is(
    all,
    Array.from({ length: 200 }, (_, number) => lineOf(number))
      .join('')
      .slice(0, all.length),
  );
  t.true(all.length > first.length);
});

test('a regular file gets its lines at its own position', async (t) => {
  const path = join(await folderUntilEnd(t), 'log');
  const fd = openSync(path, 'w');
  const output = new LogOutput(fd, () => t.fail());
  output.write('one\n');
  output.end();
  output.write('two\n');
  await new Promise(setImmediate);
  closeSync(fd);
  t.is(readFileSync(path, 'utf8'), 'one\ntwo\n');
  t.is(output.dropped, 0);
});
