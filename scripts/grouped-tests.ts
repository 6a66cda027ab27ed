import ava, { type ExecutionContext } from 'ava';

type Implementation = (t: ExecutionContext) => unknown;

/** A test that waits until it may begin. */
interface Waiting {
  begin: PromiseWithResolvers<void>;
  end: PromiseWithResolvers<void>;
}

/** Milliseconds for a test, and again after each assertion; less than the `timeout` in package.json, which ends all tests. */
const limit = 240_000;

/** Resolves when the first test begins: then all files are loaded. */
const loaded = Promise.withResolvers<void>();
/** Resolves when the tests of all files so far have ended. */
let ended = loaded.promise;

/**
 * What `ava` is to one of several test files in a process: as in a process of its own, its tests run when those of the files before
 * have ended, the serial ones one after another and then all others. Their titles begin with `file`.
 */
export function testsOf(file: string) {
  const serial: Waiting[] = [];
  const others: Waiting[] = [];
  const earlier = ended;
  const run = async () => {
    await earlier;
    for (const { begin, end } of serial) {
      begin.resolve();
      await end.promise;
    }
    for (const { begin } of others) begin.resolve();
    await Promise.all(others.map(({ end }) => end.promise));
  };
  ended = run();

  const add = (all: Waiting[]) => (title: string, work: Implementation) => {
    const waiting = { begin: Promise.withResolvers<void>(), end: Promise.withResolvers<void>() };
    all.push(waiting);
    ava(`${file} › ${title}`, async (t) => {
      // The first teardown of a test runs last.
      t.teardown(waiting.end.resolve);
      loaded.resolve();
      await waiting.begin.promise;
      // A test that never ends fails, so that those of the next files run.
      t.timeout(limit);
      await work(t);
    });
  };
  const skip = (title: string, work: Implementation) => ava.skip(`${file} › ${title}`, work);
  // Hooks run before the first test of all files, and after the last one.
  return Object.assign(add(others), {
    serial: Object.assign(add(serial), { skip }),
    skip,
    before: (work: Implementation) => ava.before(`${file} › before`, work),
    after: { always: (work: Implementation) => ava.after.always(`${file} › after`, work) },
  });
}
