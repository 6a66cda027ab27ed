import test from 'ava';
import { OpenFiles } from '../../../src/oci/uploads/open-files.ts';

/** Open files, and those that were closed. */
function openFiles() {
  const files = new OpenFiles();
  const closed: string[] = [];
  const stagedOf = (id: string) =>
    ({
      id,
      close: async () => {
        await Promise.resolve();
        closed.push(id);
      },
    }) as never;
  return { files, closed, stagedOf };
}

test('an open file is taken once, and is then the caller’s to close', async (t) => {
  const { files, closed, stagedOf } = openFiles();
  const staged = stagedOf('a');
  await files.keep(staged);
  t.deepEqual([files.has('a'), files.has('b')], [true, false]);
  t.is(files.take('b'), undefined);
  t.is(files.take('a'), staged);
  t.deepEqual([files.has('a'), files.take('a'), closed], [false, undefined, []]);
});

test('64 files stay open, then the one that was kept first is closed', async (t) => {
  const { files, closed, stagedOf } = openFiles();
  for (let at = 1; at <= 64; at += 1) await files.keep(stagedOf(String(at)));
  t.deepEqual(closed, []);
  await files.keep(stagedOf('65'));
  t.deepEqual(closed, ['1']);
  t.deepEqual([files.has('1'), files.has('2'), files.has('65')], [false, true, true]);
  await files.close();
  t.deepEqual(closed.length, 65);
  t.false(files.has('65'));
});

test.serial('a file is closed that had no request for a minute, and none that had one since', async (t) => {
  const { files, closed, stagedOf } = openFiles();
  const real = performance.now.bind(performance);
  let later = 0;
  performance.now = () => real() + later;
  t.teardown(() => (performance.now = real));
  await files.keep(stagedOf('old'));
  await files.keep(stagedOf('older'));
  await files.closeQuiet();
  t.deepEqual(closed, []);
  later = 50_000;
  await files.keep(stagedOf('young'));
  later = 61_000;
  await files.closeQuiet();
  t.deepEqual(closed, ['old', 'older']);
  t.true(files.has('young'));
  later = 120_000;
  await files.closeQuiet();
  t.deepEqual(closed, ['old', 'older', 'young']);
});
