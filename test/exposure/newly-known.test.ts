import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import { migrate } from '../../src/database/migrate.ts';
import { forget, NewlyKnown } from '../../src/exposure/newly-known.ts';
import { KnownBad } from '../../src/known-bad/known-bad.ts';
import { ListedNames } from '../../src/policy/listed-names.ts';
import { PullList } from '../../src/usage/pull-list.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

for (const dialect of dialects) {
  test(`${dialect}: very many warnings of the versions of one package are noted`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const versions = Array.from({ length: 200 }, (_, at) => ({
      id: String(at).padStart(32, '0'),
      account_id: 1,
      kind: 'package',
      name: 'lib',
      reference: `1.0.${at}`,
      last_day: 0,
      is_compared: 0,
    }));
    // More rows than a statement of MySQL can have parameters for: 3 of each, and 65,535 in all.
    const known = Array.from({ length: 120 }, (_, at) => ({ id: `GHSA-${at}`, severity: 3, affects: () => true }));
    const advisories = { of: () => Promise.resolve(known), named: () => Promise.resolve([]) };
    const newlyKnown = new NewlyKnown({
      database,
      pulls: new PullList(database),
      listed: new ListedNames(new KnownBad(database, () => Promise.resolve([])), () => false),
      protocols: [{ kind: 'package', advisories }],
      now: () => 1,
    });
    const { signal } = new AbortController();
    t.deepEqual(await newlyKnown.compare(signal), { contents: 0, exposures: 0 }, 'nothing was pulled');
    await database.transaction(async (tx) => {
      for (const some of batches(versions)) await tx.insertNew('pull_contents', some);
    });
    t.deepEqual(await newlyKnown.compare(signal), { contents: 200, exposures: 0 });
    const noted = async () => (await database.get<{ noted: number }>('SELECT COUNT(*) AS noted FROM exposures'))!.noted;
    t.is(await noted(), 200 * 120);
    t.deepEqual(await newlyKnown.compare(signal), { contents: 200, exposures: 0 }, 'they are known now');
    const forgotten = versions.slice(0, 2).map(({ id }) => id);
    await database.transaction((tx) => forget(tx, forgotten));
    t.is(await noted(), 198 * 120);
  });
}
