import test from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import { Releases } from '../../src/policy/releases.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is kept of versions that were released before their age. fixes-pass.test.ts has what clients get.

const day = 86_400_000;
const lib = { upstream: 'up', name: 'lib' };

for (const dialect of dialects) {
  test(`${dialect}: a release is recorded once, with what needs it, and holds for its policy`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const clock = testClock(500 * day);
    const releases = new Releases(database, clock.time);
    const advisories = Array.from({ length: 12 }, (_, index) => `GHSA-${index}`);
    const release = { layer: 0, version: '2.0.0', advisories, publishedAt: 7 };
    const siblings = [
      { name: 'lib.core', version: '2.0.0' },
      { name: 'lib.web', version: '2.1.0' },
    ];
    await releases.record(lib, release, siblings);
    await releases.record(lib, release, [{ name: 'late', version: '1.0.0' }]);
    const own = { layer: 3, version: '2.0.0', advisories: ['GHSA-x'], publishedAt: null };
    await releases.record(lib, own, []);
    await releases.record({ ...lib, upstream: 'other' }, { ...release, version: '9.0.0' }, []);
    const fix = { name: 'lib', version: '2.0.0' };
    const shown = { ...release, advisories: advisories.slice(0, 10), fix };
    t.deepEqual(await releases.of(lib, 1), [shown]);
    t.deepEqual(
      (await releases.of(lib, 3)).toSorted((one, other) => one.layer - other.layer),
      [shown, { ...own, fix }],
    );
    t.deepEqual(await releases.of({ ...lib, name: 'lib.web' }, 1), [{ ...shown, version: '2.1.0' }]);
    t.deepEqual(await releases.of({ ...lib, name: 'late' }, 1), [], 'it was recorded before');
    t.deepEqual(releases.counts, { all: 4, account: 1 });
    const events = await database.select<{ account_id: number; details: string }>(
      "SELECT account_id, details FROM events WHERE type = 'policy.released' AND subject_name = 'lib'",
    );
    t.deepEqual(events.map((each) => [each.account_id, JSON.parse(each.details)]).slice(0, 2), [
      [0, { layer: 'all', upstream: 'up', advisories: advisories.slice(0, 10), with: siblings }],
      [3, { layer: 'account', upstream: 'up', advisories: ['GHSA-x'], with: [] }],
    ]);
    t.is(events.length, 3);

    clock.now! += 400 * day;
    await releases.record({ ...lib, name: 'next' }, release, []);
    t.is((await releases.of(lib, 3)).length, 2, 'kept for 400 days');
    clock.now! += 1;
    await releases.record({ ...lib, name: 'last' }, release, []);
    t.deepEqual(await releases.of(lib, 3), []);
    t.is((await releases.of({ ...lib, name: 'next' }, 1)).length, 1);
  });
}
